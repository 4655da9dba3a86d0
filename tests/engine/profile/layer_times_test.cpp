// Tests what is measured, and how many times. The times themselves depend on the machine and are not tested.
#include "engine/profile/layer_times.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/plan/forecast.h"
#include "engine/plan/profile_use.h"
#include "engine/profile/link_times.h"

#include "tests/catch.h"

namespace shardline::layer_times_test {
namespace {

constexpr int64_t kLength = 16;

Config config_of(int p, int t, const std::string& optimize, double dropout,
                 const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json file = {
      {"model",
       {{"config",
         {{"model_type", "gpt2"},
          {"n_layer", 6},
          {"n_head", 4},
          {"n_embd", 32},
          {"vocab_size", 64},
          {"n_positions", 32},
          {"resid_pdrop", dropout},
          {"embd_pdrop", dropout},
          {"attn_pdrop", dropout}}}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", 16}}},
      {"smp_options",
       {{"pipeline_parallel_degree", p}, {"tensor_parallel_degree", t}, {"microbatches", 4}, {"optimize", optimize}}},
      {"runtime", {{"communicator", "threads"}, {"device", "cpu"}}},
      {"mpi_options", {{"processes_per_host", 4}}},
      {"output_dir", "unused"}};
  file.merge_patch(more);
  return parse_config(file.dump(), "layer times test");
}

struct Measured {
  ModelSource model;
  Plan plan;
  Profile profile;
};

// Measures as `shardline profile` does on four ranks.
Measured measure(const Config& config) {
  const auto [model, machines, plan] = plan_model(config, 4);
  Measured measured{model, plan, {}};
  run_ranks(4, [&](CommunicatorPtr world) {
    RankContext context{.world = world, .device_world = world, .local_rank = world->rank(), .local_size = 4};
    Profile profile{.valid_for = profile_conditions(config, plan, context)};
    profile.device = {.memory_bytes = 1e9, .flops_per_second = 1e11, .memory_bytes_per_second = 1e10};
    int64_t left = 1;
    const auto progress = [&](int64_t done, int64_t total) { left = total - done; };
    measure_layers(config, plan, model, context, profile, progress);
    measure_links(make_rank_groups(plan.layout.mesh(), world, world), at::kCPU, profile, progress);
    SL_ASSERT(left == 0, left, " measurements are missing");
    if (world->rank() == 0) measured.profile = profile;
  });
  return measured;
}

bool has_op(const std::vector<TracedOp>& ops, const std::string& name, std::vector<int64_t> first_shape) {
  return std::any_of(ops.begin(), ops.end(), [&](const TracedOp& op) {
    return op.name == name && op.calls > 0 && op.shapes.at(0) == first_shape;
  });
}

}  // namespace

TEST_CASE("equal blocks are measured once") {
  const auto model = plan_model(config_of(1, 1, "speed", 0), 4).model;
  const auto distinct = distinct_layers(model.spec);
  REQUIRE(model.spec.layers.size() == 8);
  REQUIRE(distinct.layers.size() == 3);
  CHECK(distinct.layers[1].name == model.spec.layers[1].name);
  auto uneven = model.spec;
  uneven.layers[4].params[0].shape.back() += 1;
  CHECK(distinct_layers(uneven).layers.size() == 4);
}

TEST_CASE("observed FLOPs and kept bytes equal those that layers state") {
  for (const auto& [t, optimize, dropout] : {std::tuple{1, "speed", 0.0}, {2, "speed", 0.1}, {2, "memory", 0.0}}) {
    INFO("T=" << t << " " << optimize << ", dropout " << dropout);
    const auto measured = measure(config_of(1, t, optimize, dropout));
    const auto& layers = measured.profile.layers;
    REQUIRE(layers.size() == 3);
    const ModelSpec distinct = distinct_layers(measured.model.spec);
    const WorkShape shape =
        measured.plan.layout.work_shape({.sequence_length = kLength, .types = types_of(Precision::fp32)});
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerSpec& spec = distinct.layers[i];
      const LayerWork work = spec.work(shape);
      INFO(spec.name);
      CHECK(layers[i].name == spec.name);
      CHECK(layers[i].forward_flops == work.flops(Phase::forward));
      CHECK(layers[i].backward_flops == work.flops(Phase::backward_input) + work.flops(Phase::backward_weight));
      CHECK(layers[i].parameters == local_parameters(spec, t, Counted::all));
      const int64_t tokens = shape.tokens();
      CHECK(layers[i].border_bytes == border_bytes(spec, shape));
      const auto kept = spec.kept({.tokens = tokens, .rows = shape.rows(), .t = 0, .t_degree = t});
      CHECK(layers[i].kept_bytes == kept.activations);
      CHECK(layers[i].forward_seconds > 0);
      CHECK(layers[i].backward_seconds > 0);
      CHECK(layers[i].backward_input_seconds > 0);
    }
    const int64_t tokens = shape.tokens();
    CHECK(has_op(layers[1].forward_ops, "shardline::linear_forward", {tokens, 32}));
    CHECK(has_op(layers[1].forward_ops, "shardline::layer_norm_forward", {shape.rows(), 32}));
    CHECK(has_op(layers[1].backward_ops, "shardline::add_weight_gradient", {tokens, 96 / t}));
    CHECK(measured.profile.optimizer_seconds_per_stored > 0);
    CHECK(measured.profile.clear_seconds_per_gradient > 0);
  }
}

// A skipped update is an error, so what is measured is an update; no times need to be compared.
TEST_CASE("in fp16, every measured step updates the weights, for any loss scale of the run") {
  for (const auto& scale : {nlohmann::json::object(), nlohmann::json{{"static_loss_scale", 1e30}}}) {
    nlohmann::json more = {{"training", scale}};
    more["training"]["fp16"] = true;
    CHECK_NOTHROW(measure(config_of(1, 1, "speed", 0, more)));
  }
  // The MLP's sums already exceed 65504 in the forward pass.
  const nlohmann::json overflows = {
      {"training", {{"fp16", true}}},
      {"model", {{"config", {{"initializer_range", 10}, {"n_embd", 512}, {"n_layer", 1}}}}}};
  CHECK_THROWS_WITH(measure(config_of(1, 1, "speed", 0, overflows)), Catch::Contains("overflow fp16"));
}

TEST_CASE("a profile has links for groups of several ranks, and states where it may be used") {
  const Config config = config_of(2, 2, "speed", 0);
  const auto [model, plan, profile] = measure(config);
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter"})
    CHECK(find_link(profile, "tp", operation, 2));
  CHECK(find_link(profile, "pp", "send", 2));
  CHECK(!find_link(profile, "rdp", "all_reduce", 2));
  for (const auto& link : profile.links) {
    CHECK(link.bytes.size() >= 5);
    for (const double seconds : link.seconds) CHECK(seconds > 0);
  }

  CHECK(why_not_usable(profile, profile.valid_for, plan, model.spec) == "");
  auto other = profile.valid_for;
  other["torch"] = "9.9";
  CHECK_THAT(why_not_usable(profile, other, plan, model.spec),
             Catch::Contains("measured with torch: ") && Catch::Contains(", not 9.9"));
  auto wider = model.spec;
  wider.layers[2].params[0].shape.back() += 1;
  CHECK(why_not_usable(profile, profile.valid_for, plan, wider) == "it has no layer with the shapes of h.1");
  const auto replicas = plan_model(config_of(1, 2, "speed", 0), 4).plan;
  CHECK(why_not_usable(profile, profile.valid_for, replicas, model.spec) == "its links are not those of D=2 P=1 T=2");

  const auto step = forecast_step(planning_machines(config, plan.workload, plan.layout.world(),
                                                    {.profile = std::make_shared<const Profile>(profile)}),
                                  plan);
  CHECK(step.seconds > step.pipeline_seconds);
  double busy = 0;
  for (const auto& layer : model.spec.layers) {
    const auto* measured = find_layer(profile, layer);
    REQUIRE(measured);
    busy += 4 * (measured->forward_seconds + measured->backward_seconds);
  }
  CHECK(step.pipeline_seconds > busy / 2);  // two stages
  CHECK(step.pipeline_seconds < busy);
}

}  // namespace shardline::layer_times_test
