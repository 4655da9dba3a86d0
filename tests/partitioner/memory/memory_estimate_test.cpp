#include "partitioner/memory/memory_estimate.h"

#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline {
namespace {

Planning small_job() {
  return {{.spec = published_gpt(16, 2048, 24),
           .sequence_length = 2048,
           .global_batch = 64,
           .precision = Precision::bf16,
           .software = {.fused = false}},
          {read_cluster(SHARDLINE_CLUSTERS "/p4d.24xlarge.json")}};
}

}  // namespace

TEST_CASE("states follow precision and sharding") {
  auto job = small_job();
  Layout layout{.replicas = 8, .microbatches = 8};
  const auto parameters = [&] {
    double sum = 0;
    for (const auto& layer : job.workload.spec.layers) sum += static_cast<double>(local_parameters(layer, 1));
    return sum;
  }();
  const auto bytes = [&] { return plan_layout(job, layout).memory.at(0).bytes; };
  CHECK(bytes().weights == 2 * parameters);
  CHECK(bytes().gradients == 4 * parameters);
  CHECK(bytes().optimizer == 12 * parameters);
  layout.sharding = zero(1, 8);
  CHECK(bytes().optimizer == 12 * parameters / 8);
  CHECK(bytes().gradients == 4 * parameters);
  layout.sharding = zero(3, 4);
  CHECK(bytes().weights == 2 * parameters / 4);
  CHECK(bytes().gradients == 4 * parameters / 4);
  job.workload.precision = Precision::fp32;
  layout.sharding = {};
  CHECK(bytes().weights == 4 * parameters);
  CHECK(bytes().optimizer == 8 * parameters);
}

TEST_CASE("a stage keeps as many microbatches as its list says, and the peak is where the last of them begins") {
  const auto job = small_job();
  const Layout layout{.pipeline = 4, .replicas = 1, .microbatches = 64};
  const auto planned = plan_layout(job, layout);
  const auto schedule = make_schedule(layout.schedule_choice());
  const auto kept = kept_by_chunk(job.workload, layout, planned.chunk_of_layer, 4);
  for (size_t stage = 0; stage < 4; ++stage) {
    CHECK(planned.memory[stage].bytes.activations == Approx(static_cast<double>(4 - stage) * kept[stage]));
    const auto at = static_cast<size_t>(planned.memory[stage].peak_instruction);
    CHECK(schedule.instructions[stage][at].op == Op::forward);
  }
}

TEST_CASE("advice keeps the global batch, and smaller microbatches come before recomputing and sharding") {
  auto job = small_job();
  job.machines.cluster.memory_bytes = 80 * 1073741824.0;
  const Layout layout{.replicas = 8, .microbatch_size = 8, .microbatches = 1};
  REQUIRE_FALSE(plan_layout(job, layout).fit.fits);
  const auto mild = advice_to_fit(job.workload, job.machines.cluster, layout);
  REQUIRE(mild);
  CHECK(mild->layout.microbatch_size < 8);
  CHECK(mild->layout.microbatch_size * mild->layout.microbatches == 8);
  CHECK(mild->layout.recompute.empty());

  job.machines.cluster.memory_bytes = 16 * 1073741824.0;  // less than the states
  const auto strong = advice_to_fit(job.workload, job.machines.cluster, layout);
  REQUIRE(strong);
  CHECK(strong->layout.sharded() != Sharding::Stage::none);
  CHECK(plan_layout(job, strong->layout).fit.fits);
  job.machines.cluster.memory_bytes = 1073741824.0;
  CHECK_FALSE(advice_to_fit(job.workload, job.machines.cluster, layout));
}

}  // namespace shardline
