// Tests what programs can add, in runs whose ranks are threads.
#include "engine/api/registry.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>

#include "models/graph/module_layers.h"
#include "optim/update/added_optimizer.h"
#include "optim/update/learning_rate.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::registry_test {
namespace {

using Catch::Contains;
using nlohmann::json;

ModuleModel words(const json& config) {
  const int64_t width = config.at("width");
  const auto make = [width] {
    return torch::nn::Sequential(torch::nn::Embedding(256, width), torch::nn::Linear(width, width), torch::nn::GELU(),
                                 torch::nn::Linear(width, 256))
        .ptr();
  };
  return {.vocab_size = 256, .max_positions = 16, .modules = modules_of("net", make)};
}

// Twice cross_entropy.
at::Tensor twice(const at::Tensor& outputs, const at::Tensor& labels) {
  return -2 * at::log_softmax(outputs, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
}
at::Tensor mean(const at::Tensor& outputs, const at::Tensor& labels) {
  return twice(outputs, labels).mean();
}

// AdamW without weight decay, which the tests do not use.
void adam(const ElementUpdate& u) {
  const auto& o = u.options;
  u.states[0].mul_(o.beta1).add_(u.gradients, 1 - o.beta1);
  u.states[1].mul_(o.beta2).addcmul_(u.gradients, u.gradients, 1 - o.beta2);
  const double first = 1 - std::pow(o.beta1, u.step), second = 1 - std::pow(o.beta2, u.step);
  u.values.addcdiv_(u.states[0] / first, (u.states[1] / second).sqrt() + o.epsilon, -u.learning_rate);
}

std::vector<double> seen_losses;

// Called before any config is read, because the names that configs accept are listed only once.
const bool kAdded = [] {
  Registry registry;
  registry.model("words", words)
      .loss("twice", twice)
      .loss("mean", mean)
      .optimizer("own_adam", {.states = {"exp_avg", "exp_avg_sq"}, .update = adam})
      .schedule("falling", [](int64_t step, int64_t, int64_t total) { return 1 - double(step - 1) / total; })
      .after_step([](const StepReport& report) {
        if (current_rank() == 0) seen_losses.push_back(report.loss);
      });
  use(registry);
  use(registry);  // a known name cannot be added again
  return true;
}();

std::vector<json> run(const RunFolder& folder, const json& changes) {
  json file = tiny_run(folder, {{"model", {{"config", nullptr}}},
                                {"training",
                                 {{"max_steps", 4},
                                  {"global_batch_size", 8},
                                  {"learning_rate", 0.01},
                                  {"max_grad_norm", 0},
                                  {"save_strategy", "no"},
                                  {"overwrite_output_dir", true}}},
                                {"smp_options", {{"optimize", "speed"}}}});
  file["model"]["config"] = {{"model_type", "words"}, {"width", 8}};
  file.merge_patch(changes);
  const Config config = parse_config(file.dump(), "config");
  std::ostringstream out;
  seen_losses.clear();
  run_on_ranks(config, out, {}, [&](RankContext& context) { train_job(config, context); });
  std::ifstream lines(folder / "out/metrics.jsonl");
  std::vector<json> steps;
  for (std::string line; std::getline(lines, line);) steps.push_back(json::parse(line));
  return steps;
}

std::vector<double> losses_of(const std::vector<json>& steps) {
  std::vector<double> losses;
  for (const auto& step : steps) losses.push_back(step.at("loss"));
  return losses;
}

void check_close(const std::vector<double>& some, const std::vector<double>& others, double tolerance) {
  REQUIRE(some.size() == others.size());
  for (size_t i = 0; i < some.size(); ++i) CHECK(some[i] == Approx(others[i]).epsilon(tolerance));
}

}  // namespace

TEST_CASE("an added model with an added loss, optimizer and schedule trains the same on every layout") {
  const RunFolder folder("registry");
  const json own = {{"model", {{"config", {{"loss", "twice"}}}}},
                    {"training", {{"optim", "own_adam"}, {"lr_scheduler_type", "falling"}}},
                    {"runtime", {{"dtype", "float64"}}}};
  const auto one = run(folder, own);
  REQUIRE(one.size() == 4);
  CHECK(seen_losses == losses_of(one));
  CHECK(one[3].at("learning_rate") == Approx(0.0025));
  for (const json& layout : {json{{"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}},
                                  {"mpi_options", {{"processes_per_host", 4}}}},
                             json{{"smp_options", {{"shard_optimizer_state", true}, {"shard_gradients", true}}},
                                  {"mpi_options", {{"processes_per_host", 2}}}},
                             json{{"smp_options", {{"tensor_parallel_degree", 2}, {"prescaled_batch", true}}}}}) {
    CAPTURE(layout);
    json changes = own;
    changes.merge_patch(layout);
    check_close(losses_of(run(folder, changes)), losses_of(one), 1e-12);
  }
  // The same rule as shardline's own.
  json same = own;
  same.merge_patch({{"model", {{"config", {{"loss", nullptr}}}}}, {"training", {{"optim", "adamw_torch"}}}});
  auto half = losses_of(run(folder, same));
  for (double& loss : half) loss *= 2;
  check_close(half, losses_of(one), 1e-4);  // Adam's epsilon does not scale with the loss
}

TEST_CASE("names that are taken are refused") {
  const auto added = [](auto add) {
    Registry registry;
    add(registry);
    use(registry);
  };
  CHECK_THROWS_WITH(added([](Registry& r) { r.loss("twice", twice); }), Contains("\"twice\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.loss("cross_entropy", twice); }), Contains("\"cross_entropy\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.optimizer("own_adam", {}); }), Contains("\"own_adam\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.optimizer("sgd", {}); }), Contains("\"sgd\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.schedule("cosine", {}); }), Contains("\"cosine\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.schedule("falling", {}); }), Contains("\"falling\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.model("gpt2", words); }), Contains("\"gpt2\""));
  CHECK_THROWS_WITH(added([](Registry& r) { r.model("m", words, "masked-lm"); }), Contains("masked-lm"));
}

TEST_CASE("mistakes in an added model are reported in the config") {
  const RunFolder folder("registry-mistakes");
  CHECK_THROWS_WITH(run(folder, {{"model", {{"config", {{"width", nullptr}}}}}}), Contains("width"));
  CHECK_THROWS_WITH(run(folder, {{"model", {{"config", {{"loss", "none"}}}}}}), Contains("no loss \"none\""));
  CHECK_THROWS_WITH(run(folder, {{"model", {{"config", {{"loss", "mean"}}}}}}), Contains("one number per row"));
  CHECK_THROWS_WITH(run(folder, {{"task", "masked-lm"}}), Contains("causal-lm"));
  CHECK_THROWS_WITH(run(folder, {{"smp_options", {{"optimize", "memory"}, {"tensor_parallel_degree", 2}}}}),
                    Contains("/smp_options/optimize"));
}

}  // namespace shardline::registry_test
