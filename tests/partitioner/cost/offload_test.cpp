// The cost and the savings of moving activations to the host and back.
#include "partitioner/memory/away.h"
#include "partitioner/memory/layer_bytes.h"
#include "tests/partitioner/cost/published.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::offload_test {
namespace {

Planning with_host(double gigabytes_per_second) {
  Planning planning{{.spec = published_gpt(16, 1024, 8, false, 51200, 1024),
                     .sequence_length = 1024,
                     .global_batch = 16,
                     .software = {.own_ops = true}},
                    {read_cluster(SHARDLINE_CLUSTERS "/p4d.24xlarge.json")}};
  planning.machines.cluster.host.bytes_per_second = gigabytes_per_second * 1e9;
  return planning;
}

const OffloadOptions kInputs{.enabled = true}, kEverything{.enabled = true, .everything = true};

Layout four_stages(What recomputed, const OffloadOptions& offload) {
  return {.pipeline = 4,
          .microbatches = 16,
          .schedule = "simple",
          .recompute = recompute_blocks(with_host(1).workload.spec, recomputed),
          .offload = offload};
}

// The same layers on the same stages, whatever is on the host.
PlannedLayout planned(const Planning& job, const Layout& layout) {
  const auto schedule = make_schedule(layout.schedule_choice());
  const std::vector<int> stages = {0, 0, 0, 1, 1, 2, 2, 3, 3, 3}, alone(10, 0);
  const auto& chunks = layout.pipeline == 1 ? alone : stages;
  const auto memory = memory_by_stage({job.workload, layout, schedule, chunks});
  return describe_layout(job.workload, job.machines, layout, schedule, spans_of(job, layout), prices_of(job, layout),
                         {chunks, memory});
}

double seconds(const Planning& job, const Layout& layout) {
  return planned(job, layout).step.seconds;
}
// The bytes of activations of all stages.
double activations(const Planning& job, const Layout& layout) {
  double sum = 0;
  for (const auto& stage : planned(job, layout).memory) sum += stage.activations;
  return sum;
}

}  // namespace

TEST_CASE("over a slow link, offloading more takes longer and keeps less") {
  const Planning job = with_host(0.5);
  for (const auto recomputed : {What::nothing, What::layers}) {
    CAPTURE(recomputed);
    const auto all_here = four_stages(recomputed, {}), inputs = four_stages(recomputed, kInputs),
               everything = four_stages(recomputed, kEverything);
    if (recomputed == What::nothing) {  // no block keeps an input to recompute from
      CHECK(seconds(job, inputs) == seconds(job, all_here));
      CHECK(activations(job, inputs) == activations(job, all_here));
    } else {
      CHECK(seconds(job, inputs) > seconds(job, all_here));
      CHECK(activations(job, inputs) < activations(job, all_here));
    }
    CHECK(seconds(job, everything) > seconds(job, inputs));
    CHECK(activations(job, everything) < activations(job, inputs));
  }
  const auto everything = four_stages(What::nothing, kEverything);
  CHECK(seconds(with_host(0.25), everything) > seconds(job, everything));
  const double least =
      job.workload.global_batch *
      static_cast<double>(moved_bytes(job.workload, everything, 1, layer_bytes(job.workload, everything, 0, 1))) /
      0.5e9;  // for one block, one way
  CHECK(seconds(job, everything) > least);
}

TEST_CASE("over a fast link, offloading overlaps with the computation") {
  const Planning job = with_host(1e6);
  CHECK(seconds(job, four_stages(What::nothing, kEverything)) ==
        Approx(seconds(job, four_stages(What::nothing, {}))).epsilon(1e-3));
}

TEST_CASE("activations that would be needed again immediately stay on the device, without cost or benefit") {
  Planning job = with_host(0.5);
  Layout here{.microbatches = 16}, away{.microbatches = 16, .offload = kEverything};  // backward at once
  CHECK(seconds(job, away) == seconds(job, here));
  CHECK(activations(job, away) == activations(job, here));

  away.schedule = here.schedule = "simple";
  CHECK(seconds(job, away) > seconds(job, here));
  away.offload.horizon = 1000;  // longer than the list
  CHECK(seconds(job, away) == seconds(job, here));
  CHECK(activations(job, away) == activations(job, here));
}

TEST_CASE("offloaded optimizer states leave the device, and an update takes as long as its longest simultaneous part") {
  Planning job = with_host(12);
  Layout layout{.replicas = 2, .microbatches = 8, .sharding = zero(1, 2)};
  for (const auto precision : {Precision::fp32, Precision::bf16}) {
    job.workload.types = types_of(precision);
    layout.states_on_host = false;
    const PlannedLayout device = plan_layout(job, layout);
    layout.states_on_host = true;
    const PlannedLayout host = plan_layout(job, layout);
    const MemoryBytes &there = device.memory[0], &here = host.memory[0];
    CHECK(here.optimizer == 0);
    CHECK(here.total() == Approx(there.total() - there.optimizer).epsilon(1e-14));
    CHECK(there.host == 0);
    const bool half = precision == Precision::bf16;
    const double elements = there.optimizer / (half ? 12 : 8);
    CHECK(here.host == Approx(elements * (half ? 8 + 4 + 4 + 2 : 8 + 4 + 4)));

    const Pricing pricing = pricing_for(job.workload, job.machines);
    const auto seconds = [&](double link, double memory) {
      job.machines.cluster.host = {link, 0};
      job.machines.cluster.host_memory_bytes_per_second = memory;
      return update_seconds(job.workload, layout, pricing, 1e9) - pricing.sweep(4e9);  // without the norm
    };
    CHECK(seconds(1e9, 1e15) == Approx(4 / 0.8));  // gradients are as wide as values, or wider
    CHECK(seconds(1e15, 1e9) == Approx((4 + 16 + 8 + (half ? 2 : 0)) / 0.8));
    CHECK(seconds(1e9, 1e10) == Approx(4 / 0.8));
    CHECK(seconds(1e9, 5e9) == Approx((half ? 6 : 5.6) / 0.8));
    job = with_host(12);
  }
}

TEST_CASE("offloaded activations are reported by instruction") {
  using enum Op;
  const std::vector<Instruction> list = {{forward, 0},         {forward, 1},         {forward, 2},
                                         {backward_input, 2},  {backward_weight, 2}, {backward_input, 1},
                                         {backward_weight, 1}, {backward_input, 0},  {backward_weight, 0}};
  using Flags = std::vector<bool>;
  CHECK(away_between({.offload = {.enabled = true, .horizon = 3, .everything = true}}, list) ==
        Flags{true, true, false, false, false, true, false, true, false});
  CHECK(away_between({.offload = {.enabled = true, .horizon = 4}}, list) ==
        Flags{true, false, false, false, false, false, false, true, false});
  CHECK(away_between({}, list) == Flags(list.size()));
}

}  // namespace shardline::offload_test
