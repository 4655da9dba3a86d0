#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/comm/threads_communicator.h"
#include "engine/config/config.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/plan/assignment.h"
#include "engine/train/trainer.h"
#include "models/graph/module_layers.h"
#include "optim/flat/whole_gradients.h"
#include "tests/models/graph/user_modules.h"

#include "tests/catch.h"

namespace shardline::module_model_test {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

struct Setting {
  int d = 1, p = 1, t = 1;
  std::string checkpointing = "none", pipeline = "interleaved";
  int microbatches = 1;
  std::string sharding = "none";  // "ZeRO-1", "ZeRO-2"; "ZeRO-3", "MiCS 2" with every parameter
  int64_t samples = 12;           // in each batch; with fewer than 12, batches are short
};

Config config_of(const Setting& setting) {
  const int ranks = setting.d * setting.p * setting.t;
  nlohmann::json file = {{"model", {{"config", {{"model_type", "gpt2"}}}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", user::kPositions}}},
                         {"training",
                          {{"global_batch_size", 12},
                           {"learning_rate", 1e-3},
                           {"lr_scheduler_type", "constant"},
                           {"weight_decay", 0.1},
                           {"seed", 7}}},
                         {"smp_options",
                          {{"pipeline_parallel_degree", setting.p},
                           {"tensor_parallel_degree", setting.t},
                           {"microbatches", setting.microbatches},
                           {"pipeline", setting.pipeline},
                           {"optimize", "speed"},
                           {"activation_checkpointing", setting.checkpointing}}},
                         {"mpi_options", {{"processes_per_host", ranks}}},
                         {"runtime", {{"dtype", "float64"}, {"communicator", ranks == 1 ? "local" : "threads"}}},
                         {"output_dir", "unused"}};
  auto& smp = file["smp_options"];
  smp["shard_optimizer_state"] = setting.sharding == "ZeRO-1" || setting.sharding == "ZeRO-2";
  smp["shard_gradients"] = setting.sharding == "ZeRO-2";
  if (setting.sharding == "ZeRO-3" || setting.sharding == "MiCS 2") {
    smp["sharded_data_parallel_degree"] = setting.sharding == "ZeRO-3" ? setting.d : 2;
    smp["sdp_param_persistence_threshold"] = 0;
  }
  return parse_config(file.dump(), "module model");
}

// Complete gradients of step 1, parameters after the last step, and losses.
struct Outcome {
  Tensors gradients, after;
  std::vector<double> losses;
};

void add_copy(const std::string& name, const at::Tensor& tensor, Tensors& all) {
  const auto [entry, is_new] = all.emplace(name, tensor.clone());
  if (!is_new) CHECK((entry->second - tensor).abs().max().item<double>() == 0);  // on another replica
}

Outcome train(const Setting& setting) {
  const Config config = config_of(setting);
  const ModuleModel modules = user::small_model();
  Outcome outcome;
  std::mutex mutex;
  run_ranks(setting.d * setting.p * setting.t, [&](const CommunicatorPtr& world) {
    const ModelSource model{
        .hf_config = nlohmann::json::object(), .head = {}, .spec = spec_of_modules(modules), .directory = nullptr};
    const ResolvedRun run = resolve(config, model.spec, world->size());
    const Machines machines = planning_machines(config, run.workload, world->size());
    const Plan plan = make_plan(run, assign_layers(config, run, machines));
    RankTrainer trainer({config, plan, model, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 4);
    auto& parameters = trainer.parameters();
    parameters.fill_values(values_of_modules(modules, 7));
    RepeatedBatch data(setting.samples, user::kPositions, user::kVocabulary, 5);
    trainer.accumulate_gradients(data, 1);
    for (const auto& [name, gradient] : whole_gradients(parameters, model.spec)) {
      const std::scoped_lock lock(mutex);
      add_copy(name, gradient, outcome.gradients);
    }
    std::vector<double> losses;
    for (int step = 1; step <= 4; ++step) losses.push_back(trainer.train_step(data, step).loss);
    parameters.visit_values([&](const Parameter& parameter) {
      const std::scoped_lock lock(mutex);
      add_copy(parameter.name, parameter.value, outcome.after);
    });
    const std::scoped_lock lock(mutex);
    outcome.losses = losses;
  });
  return outcome;
}

double difference(const Tensors& a, const Tensors& b) {
  double worst = 0;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    const double largest = tensor.abs().max().item<double>();
    worst = std::max(worst, (tensor - b.at(name)).abs().max().item<double>() / std::max(largest, 1e-12));
  }
  return worst;
}

}  // namespace

TEST_CASE("a model of plain modules trains the same on every layout") {
  const Outcome one = train({});
  CHECK(one.gradients.size() == 22);
  CHECK(one.losses.back() < one.losses.front());
  for (const auto& setting :
       {Setting{.checkpointing = "each"}, Setting{.microbatches = 3}, Setting{.p = 2, .microbatches = 3},
        Setting{.p = 3, .checkpointing = "group_2", .microbatches = 2},
        Setting{.d = 2, .p = 2, .checkpointing = "contiguous", .microbatches = 2},
        Setting{.d = 2, .p = 3, .microbatches = 3}, Setting{.d = 2, .checkpointing = "each"},
        Setting{.p = 2, .t = 2, .microbatches = 2}, Setting{.p = 3, .pipeline = "zb_h1", .microbatches = 6},
        Setting{.d = 4, .checkpointing = "each", .microbatches = 3, .sharding = "MiCS 2"},
        Setting{.d = 2, .p = 2, .t = 2, .microbatches = 3, .sharding = "ZeRO-3"}}) {
    CAPTURE(setting.d, setting.p, setting.t, setting.checkpointing, setting.pipeline, setting.microbatches,
            setting.sharding);
    const Outcome other = train(setting);
    CHECK(difference(one.gradients, other.gradients) < 1e-10);
    CHECK(difference(one.after, other.after) < 1e-8);
    for (size_t step = 0; step < one.losses.size(); ++step)
      CHECK(other.losses[step] == Approx(one.losses[step]).epsilon(1e-12));
  }
}

TEST_CASE("a model of plain modules trains the same if short batches leave microbatches empty") {
  const Outcome one = train({.samples = 3});
  for (const auto& setting :
       {Setting{.microbatches = 4, .samples = 3}, Setting{.d = 2, .p = 2, .microbatches = 3, .samples = 3},
        Setting{.p = 3, .checkpointing = "each", .pipeline = "zb_h1", .microbatches = 6, .samples = 3},
        Setting{.d = 4, .p = 2, .microbatches = 3, .sharding = "ZeRO-3", .samples = 3}}) {
    CAPTURE(setting.d, setting.p, setting.checkpointing, setting.pipeline, setting.microbatches, setting.sharding);
    const Outcome other = train(setting);
    CHECK(difference(one.gradients, other.gradients) < 1e-10);
    CHECK(difference(one.after, other.after) < 1e-8);
    for (size_t step = 0; step < one.losses.size(); ++step)
      CHECK(other.losses[step] == Approx(one.losses[step]).epsilon(1e-12));
  }
}

TEST_CASE("modules whose weights, gradients or states are sharded are bit-equal to whole ones") {
  const auto same = [](const Tensors& a, const Tensors& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
      return one.first == other.first && at::equal(one.second, other.second);
    });
  };
  for (const int p : {1, 2})
    for (const char* checkpointing : {"none", "each"}) {
      const Outcome whole = train({.d = 4 / p, .p = p, .checkpointing = checkpointing});
      for (const char* sharding : {"ZeRO-1", "ZeRO-2", "ZeRO-3"}) {
        CAPTURE(p, checkpointing, sharding);
        const Outcome other = train({.d = 4 / p, .p = p, .checkpointing = checkpointing, .sharding = sharding});
        CHECK(same(other.gradients, whole.gradients));
        CHECK(same(other.after, whole.after));
        CHECK(other.losses == whole.losses);
      }
    }
}

}  // namespace shardline::module_model_test
