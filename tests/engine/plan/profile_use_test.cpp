// Every setting that changes a measured time prevents the use of a profile, with a reason; the others do not.
#include "engine/plan/profile_use.h"

#include <nlohmann/json.hpp>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/profile/layer_times.h"

#include "tests/catch.h"

namespace shardline::profile_use_test {
namespace {

constexpr int kRanks = 4;

nlohmann::json base() {
  return {{"model",
           {{"config",
             {{"model_type", "gpt2"},
              {"n_layer", 4},
              {"n_head", 4},
              {"n_embd", 32},
              {"vocab_size", 64},
              {"n_positions", 32}}}}},
          {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 16}}},
          {"training", {{"global_batch_size", 16}, {"bf16", true}}},
          {"smp_options", {{"pipeline_parallel_degree", 1}, {"tensor_parallel_degree", 2}, {"microbatches", 4}}},
          {"runtime", {{"communicator", "threads"}, {"device", "cpu"}}},
          {"mpi_options", {{"processes_per_host", kRanks}}},
          {"output_dir", "unused"}};
}

// patch: over the base. host_of: by rank, as in RankContext. device_world: null: what carries host values.
struct Case {
  Config config;
  PlannedModel planned;
  std::map<std::string, std::string> conditions;

  explicit Case(const nlohmann::json& patch, const std::vector<int>& host_of = {},
                const CommunicatorPtr& device_world = nullptr)
      : config(config_of(patch)), planned(plan_model(config, kRanks)) {
    const RankContext context{
        .device_world = device_world, .local_size = host_of.empty() ? kRanks : kRanks / 2, .host_of = host_of};
    conditions = profile_conditions(config, planned.plan, context);
  }
  static Config config_of(const nlohmann::json& patch) {
    auto file = base();
    file.merge_patch(patch);
    return parse_config(file.dump(), "profile use test");
  }
  std::string why_not(const Profile& profile) const {
    return why_not_usable(profile, conditions, planned.plan, planned.model.spec);
  }
};

// Marks the profile as measured.
Profile profile_of(const Case& measured) {
  Profile profile{.valid_for = measured.conditions, .device = {}, .layers = {}, .links = {}};
  for (const auto& layer : distinct_layers(measured.planned.model.spec).layers)
    profile.layers.push_back({.name = layer.name, .kind = layer_kind(layer)});
  for (const char* group : {"tp", "rdp", "pp"})
    profile.links.push_back({.group = group, .operation = "all_reduce", .ranks = 2, .bytes = {1}, .seconds = {1}});
  return profile;
}

struct Change {
  const char* patch;
  const char* reason;
};

}  // namespace

TEST_CASE("a profile is not used if a setting that changes a measured time differs") {
  const Profile profile = profile_of(Case(nlohmann::json::object()));
  CHECK(Case(nlohmann::json::object()).why_not(profile) == "");
  const std::vector<Change> changes = {
      {R"({"training": {"optim": "sgd"}})", "optimizer: adamw, not sgd"},
      {R"({"training": {"optim": "sgd", "optim_args": "momentum=0.9"}})", "optimizer: adamw, not sgd with momentum"},
      {R"({"training": {"optim": "adam"}})", "optimizer: adamw, not adam"},
      {R"({"training": {"max_grad_value": 0.5}})", "optimizer: adamw, not adamw, gradients limited by value"},
      {R"({"training": {"bf16": false}})", "dtype: bf16 with fp32 masters, not float32"},
      {R"({"training": {"bf16": false, "fp16": true}})", "dtype: bf16 with fp32 masters, not fp16 with fp32 masters"},
      {R"({"training": {"fp32_residual_addition": true}})", "residuals added in fp32"},
      {R"({"training": {"attention_in_fp32": true}})", "attention in fp32"},
      {R"({"training": {"bf16": false, "fp16": true, "query_key_layer_scaling": true}})", "scores scaled by layer"},
      {R"({"model": {"config": {"activation_function": "relu"}}})", "tied head, not gpt2: relu"},
      {R"({"model": {"config": {"attn_pdrop": 0}}})", "attention dropout"},
      {R"({"model": {"config": {"resid_pdrop": 0}}})", "residual dropout"},
      {R"({"model": {"config": {"embd_pdrop": 0}}})", "embedding dropout"},
      {R"({"model": {"config": {"tie_word_embeddings": false}}})", "tied head"},
      {R"({"model": {"config": {"model_type": "gptj", "rotary_dim": 4}}})", "model: gpt2"},
      {R"({"model": {"config": {"n_embd": 64}}})", "no layer with the shapes of embedding"},
      {R"({"model": {"config": {"n_head": 8}}})", "no layer with the shapes of h.0"},
      {R"({"model": {"config": {"n_inner": 96}}})", "no layer with the shapes of h.0"},
      {R"({"data": {"sequence_length": 8}})", "sequence_length: 16, not 8"},
      {R"({"smp_options": {"microbatches": 2}})", "microbatch_size: 2, not 4"},
      {R"({"smp_options": {"tensor_parallel_degree": 1}})", "tensor_parallel_degree: 2, not 1"},
      {R"({"smp_options": {"optimize": "speed"}})", "optimize: memory, not speed"},
      {R"({"smp_options": {"tensor_parallel_layers": [{"pattern": "*mlp", "split": false}]}})",
       "no layer with the shapes of h.0"},
      {R"({"smp_options": {"tensor_parallel_degree": 4}, "training": {"global_batch_size": 8}})",
       "tensor_parallel_degree: 2, not 4"},
      {R"({"runtime": {"dtype": "float64"}, "training": {"bf16": false}})", "not float64"},
      {R"({"runtime": {"communicator": "mpi"}})", "communicator: threads, not mpi"},
  };
  for (const auto& [patch, reason] : changes) {
    INFO(patch);
    CHECK_THAT(Case(nlohmann::json::parse(patch)).why_not(profile), Catch::Contains(reason));
  }
  // Changes of the machine have the same effect.
  const Case two_hosts(nlohmann::json::object(), {0, 0, 2, 2});
  CHECK_THAT(two_hosts.why_not(profile),
             Catch::Contains("hosts: 1, not 2, placement DPT") && Catch::Contains("ranks_per_host: 4, not 2"));
  const nlohmann::json spread = {{"smp_options", {{"placement_strategy", "spread"}}}};
  CHECK_THAT(Case(spread, {0, 0, 2, 2}).why_not(profile_of(two_hosts)),
             Catch::Contains("hosts: 2, placement DPT, not 2, placement TPD"));
  const nlohmann::json over_mpi = {{"runtime", {{"communicator", "mpi"}}}};
  CHECK_THAT(Case(over_mpi, {}, make_local_world()).why_not(profile_of(Case(over_mpi))),
             Catch::Contains("communicator: mpi, not nccl"));
  for (const char* fact : {"device", "threads_per_rank", "products", "torch", "shardline", "optimizer_states"}) {
    auto other = profile;
    other.valid_for.at(fact) += " another";
    CHECK_THAT(Case(nlohmann::json::object()).why_not(other), Catch::Contains(cat(fact, ": ")));
  }
}

TEST_CASE("a profile is used if only settings that change no measured time differ") {
  const Profile profile = profile_of(Case(nlohmann::json::object()));
  for (const char* patch : {
           R"({"model": {"config": {"n_layer": 7}}})",
           R"({"model": {"config": {"attn_pdrop": 0.2, "layer_norm_epsilon": 1e-6}}})",
           R"({"training": {"learning_rate": 1, "weight_decay": 0.1, "seed": 3, "max_grad_norm": 0}})",
           R"({"training": {"optim": "adamw_torch"}})",
           R"({"smp_options": {"activation_checkpointing": "each"}})",
           R"({"smp_options": {"shard_optimizer_state": true, "shard_gradients": true}})",
           R"({"smp_options": {"placement_strategy": "spread"}})",
           R"({"smp_options": {"pipeline_parallel_degree": 2, "pipeline": "zb_h1", "microbatches": 8}})",
       }) {
    INFO(patch);
    CHECK(Case(nlohmann::json::parse(patch)).why_not(profile) == "");
  }
  auto fp16 = [](double scale) {
    return nlohmann::json{{"training", {{"bf16", false}, {"fp16", true}, {"static_loss_scale", scale}}}};
  };
  CHECK(Case(fp16(8)).why_not(profile_of(Case(fp16(1)))) == "");
}

TEST_CASE("a profile of another job is refused before it is used for a plan") {
  const Case sgd(nlohmann::json{{"training", {{"optim", "sgd"}}}}), adamw(nlohmann::json::object());
  const auto plan_with = [](const Case& c, Profile profile) {
    profile.device = {
        .memory_bytes = 1e9, .precision = "bf16", .flops_per_second = 1e9, .memory_bytes_per_second = 1e9};
    return planning_machines(c.config, c.planned.plan.workload, kRanks,
                             {.profile = std::make_shared<const Profile>(std::move(profile))});
  };
  CHECK_NOTHROW(plan_with(adamw, profile_of(adamw)));
  CHECK_THROWS_WITH(plan_with(adamw, profile_of(sgd)), Catch::Contains("measured with optimizer: sgd, not adamw"));
  CHECK_THROWS_AS(plan_with(adamw, profile_of(sgd)), ConfigError);
}

}  // namespace shardline::profile_use_test
