// Traced modules whose samples are columns of tensors: numbers and images.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <nlohmann/json.hpp>

#include "engine/api/registry.h"
#include "engine/run/model_source.h"
#include "models/program/trace/traced_model.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::traced_columns_test {
namespace {

using at::Tensor;
using Catch::Contains;
using nlohmann::json;
using torch::nn::Linear;

constexpr int64_t kWidth = 8, kSamples = 16;

struct Block : torch::nn::Module {
  Block() : up(kWidth, 3 * kWidth), down(3 * kWidth, kWidth) {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) { return x + down(at::tanh(up(x))); }
  Linear up, down;
};

struct Blocks : torch::nn::Module {
  Blocks() {
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>());
  }
  Tensor through(Tensor x) {
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return x;
  }
  torch::nn::ModuleList blocks;
};

// Predicts numbers from three numbers and a kind.
struct Surrogate : Blocks {
  explicit Surrogate(int64_t outputs) : first(4, kWidth), last(kWidth, outputs) {
    register_module("first", first);
    register_module("last", last);
  }
  Tensor forward(const Tensor& numbers, const Tensor& kind) {
    const Tensor all = at::cat({numbers, kind.to(numbers.scalar_type()).unsqueeze(1)}, 1);
    return last(through(first(all).unsqueeze(1))).select(1, 0);
  }
  Tensor mixing(const Tensor& numbers, const Tensor& kind) { return forward(numbers - numbers.mean(0, true), kind); }
  Linear first, last;
};

// Classifies images.
struct Images : Blocks {
  explicit Images(int64_t labels) : conv(torch::nn::Conv2dOptions(2, kWidth, 3).padding(1)), last(kWidth, labels) {
    register_module("conv", conv);
    register_module("last", last);
  }
  Tensor forward(const Tensor& image) {
    return last(through(at::relu(conv(image)).flatten(2).transpose(1, 2))).mean(1);
  }
  torch::nn::Conv2d conv;
  Linear last;
};

// Before any config is read: the names that a config accepts are listed once.
const bool kAdded = [] {
  const auto surrogate = [](Tensor (Surrogate::*forward)(const Tensor&, const Tensor&)) {
    return [forward](const json& config) {
      return TracedModel{
          .arguments = {"numbers", "kind"},
          .columns = {{.name = "numbers", .sizes = {3}}, {.name = "kind", .dtype = at::kLong, .sizes = {}}},
          .make = [forward, outputs = config.at("num_labels").get<int64_t>()] {
            return traced_module(std::make_shared<Surrogate>(outputs), forward);
          }};
    };
  };
  const auto images = [](const json& config) {
    return TracedModel{.vocab_size = 5,
                       .arguments = {"image"},
                       .columns = {{.name = "image", .sizes = {2, 4, 4}}},
                       .make = [labels = config.value("num_labels", int64_t{3})] {
                         return traced_module(std::make_shared<Images>(labels), &Images::forward);
                       }};
  };
  Registry registry;
  registry.traced_model("traced-surrogate", surrogate(&Surrogate::forward), "sequence-classification")
      .traced_model("mixing-surrogate", surrogate(&Surrogate::mixing), "sequence-classification")
      .traced_model("traced-images", images, "sequence-classification")
      .traced_model("images-as-words", images);
  use(registry);
  return true;
}();

// A .safetensors file of tensors in float32 or int64.
void write_tensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    header[name] = {{"dtype", tensor.is_floating_point() ? "F32" : "I64"},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << text << data;
}

Tensor numbers(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kFloat) * 0.37).sin().view(sizes);
}

json config_of(const RunFolder& folder, const std::string& model, const json& changes) {
  const std::string file = folder / "samples.safetensors";
  const Tensor inputs = numbers({kSamples, 3});
  write_tensors(file, {{"numbers", inputs},
                       {"kind", at::arange(kSamples).remainder(3)},
                       {"picture", numbers({kSamples, 2, 4, 4})},
                       {"values", (inputs.narrow(1, 0, 2) * inputs.narrow(1, 1, 2)).contiguous()},
                       {"classes", at::arange(kSamples).remainder(3)}});
  json config = tiny_run(folder, {{"model", {{"config", nullptr}}},
                                  {"task", "sequence-classification"},
                                  {"data", {{"train", file}, {"tokenizer", nullptr}, {"sequence_length", nullptr}}},
                                  {"training",
                                   {{"max_steps", 4},
                                    {"global_batch_size", 8},
                                    {"learning_rate", 0.01},
                                    {"save_strategy", "no"},
                                    {"overwrite_output_dir", true}}},
                                  {"smp_options", {{"optimize", "speed"}}},
                                  {"runtime", {{"dtype", "float64"}}}});
  config["model"]["config"] = {{"model_type", model}};
  if (model == "traced-images") {
    config["model"]["config"]["num_labels"] = 3;
    config["model"]["inputs"] = {{"image", "picture"}};
    config["data"]["label_column"] = "classes";
  } else {
    config["model"]["config"].update({{"num_labels", 2}, {"problem_type", "regression"}});
    config["data"]["label_column"] = "values";
  }
  config.merge_patch(changes);
  return config;
}

std::vector<double> run(const RunFolder& folder, const std::string& model, const json& changes = json::object()) {
  train_in_process(with_sample_length(parse_config(config_of(folder, model, changes).dump(), "config")));
  std::ifstream lines(folder / "out/metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);) losses.push_back(json::parse(line).at("loss"));
  return losses;
}

}  // namespace

TEST_CASE("a traced module on columns of tensors trains the same on every layout") {
  const std::string model = GENERATE("traced-surrogate", "traced-images");
  CAPTURE(model);
  const RunFolder folder("traced-columns");
  const auto one = run(folder, model);
  REQUIRE(one.size() == 4);
  CHECK(one[3] < one[0]);
  for (const auto& [smp, ranks] :
       {std::pair(json{{"tensor_parallel_degree", 2}}, 2),
        {json{{"tensor_parallel_degree", 2}, {"optimize", "memory"}}, 2},
        {json{{"pipeline_parallel_degree", 2}, {"microbatches", 2}}, 2},
        {json{{"pipeline_parallel_degree", 2}, {"tensor_parallel_degree", 2}, {"microbatches", 2}}, 8}}) {
    CAPTURE(smp.dump(), ranks);
    const auto others = run(folder, model, {{"smp_options", smp}, {"mpi_options", {{"processes_per_host", ranks}}}});
    REQUIRE(others.size() == one.size());
    for (size_t i = 0; i < one.size(); ++i) CHECK(others[i] == Approx(one[i]).epsilon(1e-12));
  }
}

TEST_CASE("a trainer gives a traced module its columns by name") {
  const RunFolder folder("traced-columns-trainer");
  json config = config_of(folder, "traced-surrogate", {{"training", {{"max_steps", 30}, {"use_cpu", true}}}});
  config["data"] = json::object();
  config.erase("output_dir");
  config["runtime"] = {{"device", "cpu"}, {"threads_per_rank", 1}};
  Trainer trainer(config.dump());
  const Tensor inputs = numbers({8, 3}), kind = at::arange(8).remainder(3);
  const Tensor values = inputs.narrow(1, 0, 2) * inputs.narrow(1, 1, 2);
  const Trainer::Columns columns = {{"numbers", inputs}, {"kind", kind}};
  const double before = trainer.step(columns, values).loss;
  for (int i = 0; i < 25; ++i) trainer.step(columns, values);
  CHECK(trainer.evaluate(columns, values) < 0.7 * before);
  CHECK((trainer.predict(columns) - values).square().mean().item<double>() ==
        Approx(trainer.evaluate(columns, values)).epsilon(1e-5));
  CHECK_THROWS_WITH(trainer.step(inputs, values), Contains("give them as tensors by these names"));
}

TEST_CASE("configs that do not fit the columns of a traced module are refused") {
  const RunFolder folder("traced-columns-mistakes");
  const auto refused = [&](const std::string& model, const json& changes, const std::string& message) {
    CAPTURE(message);
    CHECK_THROWS_WITH(run(folder, model, changes), Contains(message));
  };
  refused("traced-surrogate", {{"model", {{"inputs", {{"pixels", "numbers"}}}}}},
          "columns of other names; such arguments: numbers, kind");
  refused("traced-surrogate", {{"model", {{"inputs", {{"numbers", "labels"}}}}}}, "which is not a column of tensors");
  refused("traced-images", {{"model", {{"inputs", {{"image", "numbers"}}}}}}, "numbers");
  refused("traced-surrogate", {{"data", {{"tokenizer", "bytes"}}}}, "/data/tokenizer: has no effect");
  refused("traced-surrogate", {{"data", {{"sequence_length", 5}}}}, "/data/sequence_length: must be 1 ");
  refused("mixing-surrogate", json::object(), "the call to aten::mean.dim");
  refused("images-as-words", {{"task", "causal-lm"}}, "the model takes columns of tensors, which \"causal-lm\"");
}

}  // namespace shardline::traced_columns_test
