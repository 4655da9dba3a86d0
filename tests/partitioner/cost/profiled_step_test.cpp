// Compares steps that are priced with a profile with sums made by hand.
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "partitioner/layout/profiled_cluster.h"
#include "tests/partitioner/planning.h"

#include "tests/catch.h"

namespace shardline::profiled_step_test {
namespace {

LayerSpec layer(const std::string& name, int64_t elements, bool is_block, const std::string& tied_to = "") {
  LayerSpec layer{.name = name,
                  .is_block = is_block,
                  .params = {{.name = "w", .shape = {elements}, .tied_to = tied_to}},
                  .output = {{"hidden", {BorderTensor::kRows, 4}}}};
  layer.work = [is_block](const WorkShape&) { return LayerWork{.recomputable = is_block}; };
  return layer;
}

// embedding, two blocks, a head that shares the embedding's weights
ModelSpec model() {
  ModelSpec spec;
  spec.layers = {layer("embedding", 1000, false), layer("h.0", 500, true), layer("h.1", 500, true),
                 layer("head", 1000, false, "embedding.w")};
  spec.layers[3].output.clear();
  return spec;
}

LayerMeasurement measured(const LayerSpec& layer, double forward, double input, double weight, double together) {
  return {.name = layer.name,
          .kind = layer_kind(layer),
          .forward_seconds = forward,
          .backward_seconds = together,
          .backward_input_seconds = input,
          .backward_weight_seconds = weight,
          .recompute_core_seconds = layer.is_block ? 0.5 : 0};
}

Profile profile() {
  const auto layers = model().layers;
  Profile profile{.valid_for = {{"device", "abacus"},
                                {"ranks_per_host", "2"},
                                {"tensor_parallel_degree", "1"},
                                {"microbatch_size", "1"},
                                {"optimize", "speed"},
                                {"sequence_length", "8"}}};
  profile.device = {
      .memory_bytes = 1e9, .flops_per_second = 100, .memory_bytes_per_second = 50, .launch_seconds = 0.001};
  profile.layers = {measured(layers[0], 1, 1, 0, 1), measured(layers[1], 2, 2, 2, 3), measured(layers[3], 4, 1, 0, 1)};
  profile.clear_seconds_per_gradient = 0.001;
  profile.join_seconds_per_gradient = 0.002;
  profile.optimizer_seconds_per_stored = 0.01;
  return profile;
}

LinkMeasurement link(const std::string& group, const std::string& operation, double seconds_of_1000, double hidden) {
  return {group, operation, 2, {1000, 8000}, {seconds_of_1000, 8 * seconds_of_1000}, hidden};
}

Planning job(const Profile& profile, int64_t batch) {
  return {{.spec = model(), .sequence_length = 8, .global_batch = batch, .types = types_of(Precision::fp32)},
          {profiled_cluster(profile, 2), std::make_shared<const Profile>(profile)}};
}

StepEstimate estimate(const Planning& job, const Layout& layout, const std::vector<int>& chunk_of_layer) {
  return estimate_step(job.workload, job.machines, layout, make_schedule(layout.schedule_choice()), chunk_of_layer,
                       prices_of(job, layout), spans_of(job, layout));
}

}  // namespace

TEST_CASE("one rank is predicted to take the measured time") {
  const auto step = estimate(job(profile(), 3), {.microbatches = 3}, {0, 0, 0, 0});
  CHECK(step.pipeline_seconds == Approx(3 * ((1 + 1) + 2 * (2 + 3) + (4 + 1))));
  // 3000 gradients are cleared, 1000 joined, 2000 parameters updated.
  CHECK(step.reduction_seconds == Approx(1000 * 0.002));
  CHECK(step.optimizer_seconds == Approx(3000 * 0.001 + 2000 * 0.01));
  CHECK(step.seconds == Approx(step.pipeline_seconds + step.reduction_seconds + step.optimizer_seconds));
}

TEST_CASE("recomputation costs as much as the first computation") {
  Layout layout{.microbatches = 1};
  const auto j = job(profile(), 1);
  const double kept = estimate(j, layout, {0, 0, 0, 0}).seconds;
  layout.recompute = recompute_blocks(j.workload.spec, What::attention);
  CHECK(estimate(j, layout, {0, 0, 0, 0}).seconds - kept == Approx(2 * 0.5));
  layout.recompute = recompute_blocks(j.workload.spec, What::layers);
  CHECK(estimate(j, layout, {0, 0, 0, 0}).seconds - kept == Approx(2 * 2));
}

TEST_CASE("stages are priced by their instruction lists") {
  auto p = profile();
  p.links = {link("pp", "send", 0, 0), link("pp", "all_reduce", 0.5, 0)};
  const std::vector<int> halves = {0, 0, 1, 1};  // 3 + 4 and 6 + 4 seconds
  const auto whole = estimate(job(p, 1), {.pipeline = 2}, halves);
  CHECK(whole.pipeline_seconds == Approx(3 + 6 + 4 + 4));  // the weight gradients of h.1 come before its message
  const auto split = estimate(job(p, 1), {.pipeline = 2, .schedule = "zb_h1"}, halves);
  CHECK(split.pipeline_seconds == Approx(3 + 6 + 3 + 4));  // zb_h1 sends the gradient first, which hides these 2 s
  CHECK(whole.reduction_seconds == Approx(4 * 0.5));       // the tied gradient, 4000 bytes, on two stages
  CHECK(whole.optimizer_seconds == Approx(1500 * 0.001 + 1500 * 0.01));
  // A message of 8 x 4 floats takes as long as the smallest measured one, in each direction.
  p.links[0] = link("pp", "send", 0.25, 0);
  CHECK(estimate(job(p, 1), {.pipeline = 2}, halves).pipeline_seconds == Approx(3 + 6 + 4 + 4 + 2 * 0.25));
}

TEST_CASE("the backward pass hides reductions to the measured extent") {
  auto p = profile();
  const auto of = [&](double hidden) {
    p.links = {link("rdp", "all_reduce", 0.25, hidden)};  // 1 s for 1000 parameters, half a second for a block's 500
    return estimate(job(p, 2), {.replicas = 2}, {0, 0, 0, 0});
  };
  // In the order of the backward pass: the head is ready 1 s after its start, the blocks after 4 and 7 s, and the
  // embedding after 8 s. Only the embedding is reduced after the backward pass.
  const double compute = of(1).pipeline_seconds;
  CHECK(compute == Approx(1 + 2 + 2 + 4 + 1 + 3 + 3 + 1));
  CHECK(of(1).reduction_seconds == Approx(1 + 2));                  // also adds the gradients of both uses
  CHECK(of(0).reduction_seconds == Approx(1 + 2 + 1 + 0.5 + 0.5));  // the other reductions slow down the computation
  CHECK(of(0.5).reduction_seconds == Approx(1 + 2 + 1));
}

TEST_CASE("a profile has no times for other shapes") {
  const auto j = job(profile(), 4);
  CHECK(is_measured(j.workload, j.machines.profile.get(), {}));
  CHECK_FALSE(is_measured(j.workload, j.machines.profile.get(), {.tensor = 2}));
  CHECK_FALSE(is_measured(j.workload, j.machines.profile.get(), {.microbatch_size = 2}));
  CHECK_FALSE(is_measured(j.workload, j.machines.profile.get(), {.tensor = 1, .sequence_parallel = true}));
  CHECK_FALSE(is_measured({}, nullptr, {}));
}

TEST_CASE("a measured machine can be used as a cluster") {
  auto p = profile();
  p.links = {{"tp", "all_reduce", 2, {8, 4000}, {0.02, 4}}, {"pp", "send", 2, {8, 4000}, {0.03, 2}}};
  const auto cluster = profiled_cluster(p, 4);
  CHECK(cluster.nodes == 2);
  CHECK(cluster.devices_per_node == 2);
  CHECK(cluster.device == "abacus");
  CHECK(cluster.intra_node.bytes_per_second == 1000);  // 2 x 4000 / 2 bytes pass in 4 s
  CHECK(cluster.intra_node.latency_seconds == 0.03);
  // From these numbers, the planner computes the measured times.
  const Pricing pricing(cluster, Precision::fp32, 4, false);
  CHECK(pricing.collective(Collective::Kind::all_reduce, 4000, {2, 2, Group::tp}) == Approx(4).epsilon(0.02));
  CHECK(pricing.sweep(100, 0) == Approx(2));
  p.valid_for.erase("ranks_per_host");
  CHECK_THROWS_WITH(profiled_cluster(p, 2), Catch::Contains("does not state its ranks_per_host"));
}

}  // namespace shardline::profiled_step_test
