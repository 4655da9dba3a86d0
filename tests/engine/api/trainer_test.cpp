// Tests a Trainer with one rank. tests/install tests one with several ranks, which are processes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>

#include "include/shardline/c.h"
#include "include/shardline/shardline.h"
#include "models/graph/module_layers.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::trainer_test {
namespace {

using Catch::Contains;
using nlohmann::json;

ModuleModel network(const json& config) {
  const int64_t width = config.at("width");
  const auto make = [width] {
    return torch::nn::Sequential(torch::nn::Linear(3, width), torch::nn::Tanh(), torch::nn::Linear(width, 2)).ptr();
  };
  return {.max_positions = 1, .modules = modules_of("net", make), .features = 3};
}

Registry with_network() {
  static const Registry registry = [] {
    Registry made;
    made.model("network", network, "sequence-classification");
    return made;
  }();
  return registry;
}

// A regression with two outputs.
std::string numbers(const json& changes = json::object()) {
  json config = {
      {"model",
       {{"config", {{"model_type", "network"}, {"width", 8}, {"num_labels", 2}, {"problem_type", "regression"}}}}},
      {"task", "sequence-classification"},
      {"data", {{"sequence_length", 1}}},
      {"training",
       {{"global_batch_size", 16},
        {"max_steps", 50},
        {"learning_rate", 0.02},
        {"lr_scheduler_type", "constant"},
        {"seed", 3}}},
      {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}}}};
  config.merge_patch(changes);
  return config.dump();
}

at::Tensor inputs_of(int64_t count) {
  return at::arange(3 * count, at::kDouble).view({count, 3}).sin();
}
at::Tensor targets_of(const at::Tensor& inputs) {
  return inputs.narrow(1, 0, 2) * inputs.narrow(1, 1, 2);
}

std::string words(const json& changes = json::object()) {
  json config = {{"model",
                  {{"config",
                    {{"model_type", "gpt2"},
                     {"vocab_size", 31},
                     {"n_positions", 8},
                     {"n_embd", 8},
                     {"n_layer", 1},
                     {"n_head", 2}}}}},
                 {"data", {{"sequence_length", 8}}},
                 {"training", {{"global_batch_size", 4}, {"max_steps", 3}}},
                 {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}}}};
  config.merge_patch(changes);
  return config.dump();
}

}  // namespace

TEST_CASE("a trainer trains on numbers in the caller's memory and continues from a checkpoint") {
  const RunFolder folder("trainer");
  Trainer trainer(numbers(), with_network());
  const at::Tensor inputs = inputs_of(16), targets = targets_of(inputs);
  std::vector<int64_t> seen;
  trainer.after_step([&](const StepReport& report) { seen.push_back(report.step); });
  const double before = trainer.step(inputs, targets).loss;
  const std::string saved = trainer.save(folder / "saved");
  for (int i = 0; i < 40; ++i) trainer.step(inputs, targets);
  const double after = trainer.evaluate(inputs, targets);
  CHECK(after < 0.5 * before);
  CHECK(seen.size() == 41);
  CHECK(seen.back() == 41);
  // The loss is the mean over what predict returns.
  CHECK((trainer.predict(inputs) - targets).square().mean().item<double>() == Approx(after).epsilon(1e-5));

  trainer.resume(saved);
  CHECK(trainer.steps() == 1);
  for (int i = 0; i < 40; ++i) trainer.step(inputs, targets);
  CHECK(trainer.evaluate(inputs, targets) == after);

  // Another trainer reads arrays, and more samples than a batch has.
  Trainer other(numbers({{"training", {{"seed", 4}}}}), with_network());
  other.resume(saved);
  const at::Tensor many = inputs_of(40), wanted = targets_of(many).contiguous();
  Samples samples{.count = 40,
                  .features = many.const_data_ptr<double>(),
                  .width = 3,
                  .targets = wanted.const_data_ptr<double>(),
                  .outputs = 2};
  trainer.resume(saved);
  CHECK(other.evaluate(samples) == Approx(trainer.evaluate(many, wanted)).epsilon(1e-12));
  CHECK(other.predict(samples).size() == 80);
  CHECK_THROWS_WITH(other.step(samples), Contains("16 for each") && Contains("global_batch_size"));
}

TEST_CASE("a trainer returns its place and its plan") {
  const Trainer trainer(numbers(), with_network());
  CHECK(trainer.place().size == 1);
  CHECK(trainer.place().pipeline == std::vector<int>{0});
  CHECK(trainer.place().replica_ranks == std::vector<int>{0});
  CHECK_THAT(trainer.plan(), Contains("net.0 ... net.2"));
}

TEST_CASE("a language model's labels are its ids, unless others are given") {
  const at::Tensor ids = at::arange(32).view({4, 8}).remainder(31);
  at::Tensor labels = ids.clone();
  Trainer one(words()), two(words()), none(words());
  const double loss = one.step(ids).loss;
  CHECK(two.step(ids, labels).loss == loss);
  labels.narrow(1, 4, 4).fill_(-100);
  CHECK(none.step(ids, labels).loss != loss);
  labels.fill_(-100);
  CHECK_THROWS_WITH(none.step(ids, labels), Contains("no token to predict"));
}

TEST_CASE("a trainer offloads to an output directory that does not exist yet, or to the current one") {
  const RunFolder folder("trainer-offload");
  const at::Tensor ids = at::arange(32).view({4, 8}).remainder(31);
  const json offload = {{"smp_options", {{"offload_activations", true}, {"activation_checkpointing", "each"}}}};
  json saved = offload;
  saved["output_dir"] = folder / "new/out";
  const double loss = Trainer(words()).step(ids).loss;
  CHECK(Trainer(words(offload)).step(ids).loss == loss);
  CHECK(Trainer(words(saved)).step(ids).loss == loss);
}

TEST_CASE("a trainer does not predict with a built-in language model, which keeps no logits") {
  Trainer language(words());
  CHECK_THROWS_WITH(language.predict(at::arange(16).view({2, 8})), Contains("use evaluate for its loss"));
}

TEST_CASE("a trainer refuses samples that do not fit its model") {
  Trainer language(words()), numeric(numbers(), with_network());
  const at::Tensor ids = at::arange(16).view({2, 8}), inputs = inputs_of(4);
  CHECK_THROWS_WITH(language.step(ids + 20), Contains("the id 31"));
  CHECK_THROWS_WITH(language.step(ids, ids + 20), Contains("the label 31"));
  CHECK_THROWS_WITH(language.step(at::arange(18).view({2, 9})), Contains("8 positions"));
  CHECK_THROWS_WITH(language.step(inputs), Contains("ids, not features"));
  CHECK_THROWS_WITH(numeric.step(ids), Contains("3 features, not ids"));
  CHECK_THROWS_WITH(numeric.step(inputs.narrow(1, 0, 2), targets_of(inputs)), Contains("3 features"));
  CHECK_THROWS_WITH(numeric.step(inputs), Contains("2 numbers"));
  CHECK_THROWS_WITH(numeric.step(inputs, inputs), Contains("2 numbers"));
  CHECK_THROWS_WITH(numeric.step(inputs, targets_of(inputs_of(3))), Contains("4 samples"));
  CHECK_THROWS_WITH(numeric.step(Samples{}), Contains("ids or features"));
  CHECK_THROWS_WITH(numeric.step(Samples{.count = 1, .length = 0}), Contains("length at least 1; got 1 and 0"));
}

TEST_CASE("a trainer refuses configs that it does not support") {
  CHECK_THROWS_WITH(Trainer(words({{"training", {{"max_steps", -1}}}})), Contains("/training/max_steps"));
  CHECK_THROWS_WITH(
      Trainer(words({{"data", {{"validation_split_percentage", 10}}},
                     {"training",
                      {{"max_steps", 5}, {"lr_scheduler_type", "reduce_lr_on_plateau"}, {"eval_strategy", "epoch"}}}})),
      Contains("use another schedule in a Trainer"));
  CHECK_THROWS_WITH(Trainer(words({{"smp_options", {{"pipeline_parallel_degree", 2}}}})), Contains("mpirun -np 2"));
  CHECK_THROWS_WITH(Trainer(words({{"runtime", {{"communicator", "threads"}}}})), Contains("threads"));
  CHECK_THROWS_WITH(Trainer(words({{"data", {{"train", "a.txt"}}}})), Contains("/data/format"));
  CHECK_THROWS_WITH(Trainer(words({{"model", {{"config", {{"model_type", "unknown"}}}}}})), Contains("gpt2"));
  CHECK_THROWS_AS(Trainer("missing.json"), ConfigError);
}

TEST_CASE("the C interface returns errors as text") {
  CHECK(shardline_create(nullptr) == nullptr);
  CHECK_THAT(shardline_error(), Contains("null"));
  CHECK(shardline_create("{}") == nullptr);
  CHECK_THAT(shardline_error(), Contains("model"));
  shardline_trainer* trainer = shardline_create(words().c_str());
  REQUIRE(trainer != nullptr);
  CHECK(shardline_step(trainer, nullptr, nullptr) == 1);
  CHECK_THAT(shardline_error(), Contains("ids or features"));
  CHECK(shardline_place_of(trainer).size == 1);
  CHECK(shardline_steps(trainer) == 0);
  shardline_destroy(trainer);
}

}  // namespace shardline::trainer_test
