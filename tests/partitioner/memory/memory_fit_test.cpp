#include "partitioner/memory/memory_fit.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "partitioner/memory/layer_bytes.h"
#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::memory_estimate_test::memory_fit_test {
namespace {

Planning small_job() {
  return {{.spec = published_gpt(16, 2048, 24),
           .sequence_length = 2048,
           .global_batch = 64,
           .types = types_of(Precision::bf16),
           .software = {.fused = false}},
          {read_cluster(SHARDLINE_CLUSTERS "/p4d.24xlarge.json")}};
}

std::optional<MemoryAdvice> advice_to_fit(const Planning& job, const Layout& layout) {
  return advice_to_fit(job.workload, job.machines.cluster, layout,
                       [&](const Layout& changed) { return plan_layout(job, changed).chunk_of_layer; });
}

}  // namespace

TEST_CASE("states follow precision and sharding") {
  auto job = small_job();
  Layout layout{.replicas = 8, .microbatches = 8};
  const auto parameters = static_cast<double>(job.workload.spec.parameter_count());  // tied to the embedding
  const auto bytes = [&] { return plan_layout(job, layout).memory.at(0); };
  const auto uses = parameters + static_cast<double>(job.workload.spec.param("embedding.wte.weight").numel());
  CHECK(bytes().weights == 2 * parameters);
  CHECK(bytes().gradients == 4 * uses);
  CHECK(bytes().optimizer == 12 * parameters);
  layout.sharding = zero(1, 8);
  CHECK(bytes().optimizer == 12 * parameters / 8);
  CHECK(bytes().gradients == 4 * uses);
  layout.sharding = zero(3, 4);
  CHECK(bytes().optimizer == 12 * parameters / 4);
  CHECK(bytes().weights > 2 * parameters / 4);  // including the layers that are whole during a pass
  CHECK(bytes().weights < 2 * parameters / 2);
  CHECK(bytes().gradients > 4 * uses / 4);
  CHECK(bytes().gradients < 4 * uses / 2);
  job.workload.types = types_of(Precision::fp32);
  layout.sharding = {};
  CHECK(bytes().weights == 4 * parameters);
  CHECK(bytes().optimizer == 8 * parameters);
}

TEST_CASE("a stage keeps as many microbatches as its list says") {
  const auto job = small_job();
  const Layout layout{.pipeline = 4, .replicas = 1, .microbatches = 64};
  const auto planned = plan_layout(job, layout);
  std::vector<int64_t> kept(4);
  for (size_t layer = 0; layer < planned.chunk_of_layer.size(); ++layer)
    kept[planned.chunk_of_layer[layer]] +=
        kept_bytes(job.workload, layout, layer, layer_bytes(job.workload, layout, 0, layer));
  for (size_t stage = 0; stage < 4; ++stage)
    CHECK(planned.memory[stage].activations == static_cast<double>((4 - stage) * kept[stage]));
}

TEST_CASE("advice keeps the global batch, and smaller microbatches come before recomputing and sharding") {
  auto job = small_job();
  job.machines.cluster.memory_bytes = 80 * 1073741824.0;
  const Layout layout{.replicas = 8, .microbatch_size = 8, .microbatches = 1};
  REQUIRE_FALSE(plan_layout(job, layout).fit.fits);
  const auto mild = advice_to_fit(job, layout);
  REQUIRE(mild);
  CHECK(mild->layout.microbatch_size < 8);
  CHECK(mild->layout.microbatch_size * mild->layout.microbatches == 8);
  CHECK(mild->layout.recompute.empty());

  job.machines.cluster.memory_bytes = 16 * 1073741824.0;  // less than the states
  const auto strong = advice_to_fit(job, layout);
  REQUIRE(strong);
  CHECK(strong->layout.sharded() != Sharding::Level::none);
  CHECK(plan_layout(job, strong->layout).fit.fits);
  job.machines.cluster.memory_bytes = 1073741824.0;
  CHECK_FALSE(advice_to_fit(job, layout));
}

TEST_CASE("advice makes no more microbatches than a config may have") {
  auto job = small_job();
  job.workload.global_batch = 4 * kMostMicrobatches;
  job.machines.cluster.memory_bytes = 1073741824.0;  // less than anything needs
  const Layout layout{.microbatch_size = 4, .microbatches = kMostMicrobatches};
  std::vector<Layout> tried;
  advice_to_fit(job.workload, job.machines.cluster, layout, [&](const Layout& changed) {
    tried.push_back(changed);
    return std::vector<int>(job.workload.spec.layers.size());
  });
  CHECK_FALSE(tried.empty());
  for (const auto& changed : tried) CHECK(changed.microbatches == kMostMicrobatches);
}

TEST_CASE("a schedule from a file keeps its number of microbatches") {
  auto job = small_job();
  const std::string path = std::filesystem::temp_directory_path() / cat("memory-fit-", getpid(), ".csv");
  std::ofstream(path) << "F0 B0\nF0 B0\n";
  Layout layout{.pipeline = 2, .replicas = 4, .microbatch_size = 16, .schedule = path};
  job.machines.cluster.memory_bytes = plan_layout(job, layout).fit.bytes * 0.6;
  const auto advice = advice_to_fit(job, layout);
  REQUIRE(advice);
  CHECK(advice->layout.microbatch_size == 16);
  CHECK_THAT(advice->text, Catch::Contains("recompute"));
  std::filesystem::remove(path);
}

}  // namespace shardline::memory_estimate_test::memory_fit_test
