// Tests traced modules of a user's program, in runs whose ranks are threads.
#include "models/program/trace/traced_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/api/registry.h"
#include "include/shardline/nn.h"
#include "models/files/tensor_files.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::traced_model_test {
namespace {

using at::Tensor;
using Catch::Contains;
using nlohmann::json;

struct Block : torch::nn::Module {
  explicit Block(int64_t width)
      : norm(torch::nn::LayerNormOptions({width})),
        qkv(width, 3 * width),
        out(width, width),
        up(width, 2 * width),
        down(2 * width, width) {
    register_module("norm", norm);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(Tensor x) {
    const auto parts = qkv(norm(x)).view({x.size(0), x.size(1), 3, 2, -1}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + out(mixed.transpose(1, 2).reshape(x.sizes()));
    return x + down(at::tanh(up(x)));
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear qkv, out, up, down;
};

struct Net : torch::nn::Module {
  explicit Net(int64_t width) : words(256, width), positions(32, width) {
    register_module("words", words);
    register_module("positions", positions);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Block>(width));
  }
  Tensor forward(const Tensor& ids) {
    auto x = words(ids) + positions(at::arange(ids.size(1), ids.options()));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return at::linear(x, words->weight);
  }
  Tensor mixing(const Tensor& ids) {
    const auto logits = forward(ids);
    return logits - logits.mean(0, true);
  }
  torch::nn::Embedding words, positions;
  torch::nn::ModuleList blocks;
};

// The same blocks, built from modules that declare how they are split, with the net's own loss.
struct SplitNet : torch::nn::Module {
  struct Part : torch::nn::Module {
    explicit Part(int64_t width)
        : norm(torch::nn::LayerNormOptions({width})),
          attention(nn::AttentionOptions(width, 2).causal(true)),
          up(width, 2 * width),
          down(2 * width, width) {
      register_module("norm", norm);
      register_module("attention", attention);
      register_module("up", up);
      register_module("down", down);
    }
    Tensor forward(Tensor x) {
      x = x + attention(norm(x));
      return x + down(at::tanh(up(x)));
    }
    torch::nn::LayerNorm norm;
    nn::Attention attention;
    nn::ColumnLinear up;
    nn::RowLinear down;
  };
  explicit SplitNet(int64_t width) : words(256, width) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Part>(width));
    register_module("loss", loss);
  }
  std::vector<Tensor> forward(const Tensor& ids, const Tensor& labels) {
    Tensor x = words(ids);
    for (const auto& block : *blocks) x = block->as<Part>()->forward(x);
    const Tensor logits = at::linear(x, words->weight);
    const int64_t pairs = ids.size(1) - 1;
    return {loss(logits.narrow(1, 0, pairs), labels.narrow(1, 1, pairs)), logits};
  }
  nn::VocabEmbedding words;
  torch::nn::ModuleList blocks;
  nn::CrossEntropy loss;
};

// The same model, made of torch's modules, with the same values.
struct PlainNet : torch::nn::Module {
  struct Attention : torch::nn::Module {
    explicit Attention(int64_t width) : q(width, width), k(width, width), v(width, width), out(width, width) {
      register_module("q", q);
      register_module("k", k);
      register_module("v", v);
      register_module("out", out);
    }
    Tensor forward(const Tensor& x) {
      const auto by_head = [](const Tensor& y) { return y.view({y.size(0), y.size(1), 2, -1}).transpose(1, 2); };
      const auto mixed = at::scaled_dot_product_attention(by_head(q(x)), by_head(k(x)), by_head(v(x)), {}, 0.0, true);
      return out(mixed.transpose(1, 2).flatten(2));
    }
    torch::nn::Linear q, k, v, out;
  };
  struct Part : torch::nn::Module {
    explicit Part(int64_t width)
        : norm(torch::nn::LayerNormOptions({width})), up(width, 2 * width), down(2 * width, width) {
      register_module("norm", norm);
      attention = register_module("attention", std::make_shared<Attention>(width));
      register_module("up", up);
      register_module("down", down);
    }
    Tensor forward(Tensor x) {
      x = x + attention->forward(norm(x));
      return x + down(at::tanh(up(x)));
    }
    torch::nn::LayerNorm norm;
    std::shared_ptr<Attention> attention;
    torch::nn::Linear up, down;
  };
  explicit PlainNet(int64_t width) : words(256, width) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<Part>(width));
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = words(ids);
    for (const auto& block : *blocks) x = block->as<Part>()->forward(x);
    return at::linear(x, words->weight);
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
};

// A counter of steps, a factor that follows from it, a buffer that modules share, and one without a use.
struct CountingNet : Net {
  explicit CountingNet(int64_t width) : Net(width) {
    steps = register_buffer("steps", at::zeros({}, at::kLong));
    factor = register_buffer("factor", at::ones({width}));
    blocks[0]->register_buffer("factor", factor);
    register_buffer("odd", at::ones({3}, at::kBool));
  }
  Tensor forward(const Tensor& ids) {
    steps.add_(1);
    factor.mul_(0.5);
    auto x = words(ids) * (1 + factor);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return at::linear(x / steps, words->weight);
  }
  Tensor steps, factor;
};

std::shared_ptr<PlainNet> plain_net(int64_t width) {
  const SplitNet values(width);
  const auto net = std::make_shared<PlainNet>(width);
  const at::NoGradGuard no_grad;
  const auto from = values.named_parameters();
  for (auto& item : net->named_parameters()) item.value().copy_(from[item.key()]);
  return net;
}

Tensor log_of_label(const Tensor& outputs, const Tensor& labels) {
  return at::log_softmax(outputs, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
}
Tensor focal(const Tensor& outputs, const Tensor& labels) {
  const Tensor log_p = log_of_label(outputs, labels);
  return -(1 - log_p.exp()).square() * log_p;
}
// The cross entropy, as a loss of the program.
Tensor entropy(const Tensor& outputs, const Tensor& labels) {
  return -log_of_label(outputs, labels);
}

// Before any config is read: the names that a config accepts are listed once.
const bool kAdded = [] {
  const auto net = [](Tensor (Net::*forward)(const Tensor&)) {
    return [forward](const json& config) {
      return TracedModel{.vocab_size = 256, .make = [forward, width = config.at("width").get<int64_t>()] {
                           return traced_module(std::make_shared<Net>(width), forward);
                         }};
    };
  };
  Registry registry;
  registry.traced_model("traced-net", net(&Net::forward)).traced_model("mixing-net", net(&Net::mixing));
  const auto split = [](const json& config) {
    return TracedModel{.vocab_size = 256,
                       .arguments = {"input_ids", "labels"},
                       .results = {"loss", "logits"},
                       .make = [width = config.at("width").get<int64_t>()] {
                         return traced_module(std::make_shared<SplitNet>(width), &SplitNet::forward);
                       }};
  };
  const auto plain = [](const json& config) {
    return TracedModel{.vocab_size = 256, .make = [width = config.at("width").get<int64_t>()] {
                         return traced_module(plain_net(width), &PlainNet::forward);
                       }};
  };
  registry.loss("focal", focal).loss("entropy", entropy);
  registry.traced_model("counting-net", [](const json& config) {
    return TracedModel{.vocab_size = 256, .make = [width = config.at("width").get<int64_t>()] {
                         return traced_module(std::make_shared<CountingNet>(width), &CountingNet::forward);
                       }};
  });
  registry.traced_model("split-net", split).traced_model("plain-net", plain);
  use(registry);
  return true;
}();

json config_of(const RunFolder& folder, const json& changes) {
  json file = tiny_run(folder, {{"model", {{"config", nullptr}}},
                                {"training",
                                 {{"max_steps", 4},
                                  {"global_batch_size", 8},
                                  {"learning_rate", 0.01},
                                  {"save_strategy", "no"},
                                  {"overwrite_output_dir", true}}},
                                {"smp_options", {{"optimize", "speed"}}},
                                {"runtime", {{"dtype", "float64"}}}});
  file["model"]["config"] = {{"model_type", "traced-net"}, {"width", 8}};
  file.merge_patch(changes);
  return file;
}

// out: the folder for its output
std::vector<double> run(const RunFolder& folder, const json& changes, const std::string& out = "out") {
  json file = config_of(folder, changes);
  file["output_dir"] = folder / out;
  const Config config = parse_config(file.dump(), "config");
  train_in_process(config);
  std::ifstream lines(folder / (out + "/metrics.jsonl"));
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);)
    if (const json record = json::parse(line); record.contains("loss")) losses.push_back(record.at("loss"));
  return losses;
}

void check_close(const std::vector<double>& some, const std::vector<double>& others) {
  REQUIRE(some.size() == others.size());
  for (size_t i = 0; i < some.size(); ++i) CHECK(some[i] == Approx(others[i]).epsilon(1e-12));
}

}  // namespace

TEST_CASE("a traced module trains the same on every layout, and its weights are saved by their names") {
  const RunFolder folder("traced");
  const auto one = run(folder, json::object());
  REQUIRE(one.size() == 4);
  CHECK(one[3] < one[0]);
  const json layout = {{"smp_options",
                        {{"pipeline_parallel_degree", 2},
                         {"tensor_parallel_degree", 2},
                         {"microbatches", 2},
                         {"shard_optimizer_state", true},
                         {"activation_checkpointing", "each"}}},
                       {"mpi_options", {{"processes_per_host", 8}}}};
  check_close(run(folder, layout), one);
  CHECK(!std::filesystem::exists(folder / "out/model.pt2"));
  const TensorFiles saved = open_safetensors(folder / "out", "model");
  REQUIRE(saved.size() == 1);
  const auto& tensors = saved.begin()->second.tensors();
  CHECK(tensors.size() == 2 + 3 * 10);
  CHECK(tensors.at("words.weight").shape == std::vector<int64_t>{256, 8});
  CHECK(tensors.at("blocks.2.qkv.weight").shape == std::vector<int64_t>{24, 8});
  std::ifstream written(folder / "out/config.json");
  CHECK(json::parse(written).at("model_type") == "traced-net");

  // A new run starts with the weights in the directory instead of the module's own.
  std::filesystem::rename(folder / "out", folder / "first");
  const auto next = run(folder, {{"model", {{"path", folder / "first"}, {"config", nullptr}}}});
  CHECK(next[0] < one[0]);
}

TEST_CASE("the buffers that a traced module changes are saved with its weights, and the next run begins with them") {
  const RunFolder folder("traced-buffers");
  const json model = {{"model", {{"config", {{"model_type", "counting-net"}}}}},
                      {"training", {{"save_strategy", "steps"}, {"save_steps", 2}}}};
  const auto with = [&](json changes) {
    changes.merge_patch(model);
    return changes;
  };
  const auto check_saved = [&](const std::string& directory, int64_t steps) {
    CAPTURE(directory);
    const TensorFiles saved = open_safetensors(folder / directory, "model");
    REQUIRE(saved.size() == 1);
    const TensorFile& file = saved.begin()->second;
    CHECK(file.tensors().size() == 2 + 3 * 10 + 3);  // with positions, which no layer uses
    CHECK(file.tensors().at("steps").dtype == at::kLong);
    CHECK(file.tensor("steps").item<int64_t>() == steps);
    CHECK(file.tensor("factor")[0].item<double>() == std::pow(0.5, steps));
    CHECK(file.tensors().at("odd").dtype == at::kBool);
  };
  const auto one = run(folder, model, "one");
  check_saved("one", 4);
  check_saved("one/checkpoint-2", 2);
  const json layout =
      with({{"smp_options", {{"pipeline_parallel_degree", 2}, {"tensor_parallel_degree", 2}, {"microbatches", 2}}},
            {"mpi_options", {{"processes_per_host", 8}}}});
  check_close(run(folder, layout, "layout"), one);
  check_saved("layout", 4);
  check_saved("layout/checkpoint-2", 2);
  const auto rest =
      run(folder, with({{"training", {{"resume_from_checkpoint", folder / "layout/checkpoint-2"}}}}), "rest");
  check_close({rest.end() - 2, rest.end()}, {one.end() - 2, one.end()});
  check_saved("rest", 4);
  // A parameter that no layer uses is that of the checkpoint, too, and not what the module starts with now.
  run(folder,
      with(
          {{"training",
            {{"resume_from_checkpoint", folder / "layout/checkpoint-2"}, {"seed", 7}, {"resume_with_changes", true}}}}),
      "seed");
  const auto unused_in = [&](const std::string& directory) {
    return open_safetensors(folder / directory, "model").begin()->second.tensor("positions.weight");
  };
  CHECK(unused_in("seed").equal(unused_in("one")));
  run(folder, {{"model", {{"path", folder / "one"}, {"config", nullptr}}}}, "next");
  check_saved("next", 8);
}

TEST_CASE("the best model of a traced module that changes buffers has the buffers of its step") {
  const RunFolder folder("traced-best");
  const auto records = [&](const std::string& out, const char* key) {
    std::vector<std::pair<int64_t, double>> values;  // by step
    std::ifstream lines(folder / (out + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const json record = json::parse(line); record.contains(key))
        values.emplace_back(record.at("step"), record.at(key));
    return values;
  };
  const json model = {{"model", {{"config", {{"model_type", "counting-net"}}}}}};
  json training = {{"training",
                    {{"eval_strategy", "steps"},
                     {"eval_steps", 1},
                     {"save_strategy", "steps"},
                     {"save_steps", 1},
                     {"load_best_model_at_end", true},
                     {"metric_for_best_model", "eval_loss"},
                     {"greater_is_better", true}}},  // so that the last step is not the best
                   {"data", {{"validation", folder / "text.txt"}}},
                   {"smp_options", {{"shard_optimizer_state", true}}},
                   {"mpi_options", {{"processes_per_host", 2}}}};
  training.merge_patch(model);
  run(folder, training, "best");
  const auto losses = records("best", "eval_loss");
  REQUIRE(losses.size() == 4);
  const auto best = std::ranges::max_element(losses, {}, &std::pair<int64_t, double>::second);
  REQUIRE(best->first < 4);
  const auto tensors = open_safetensors(folder / "best", "model");
  CHECK(tensors.begin()->second.tensor("steps").item<int64_t>() == best->first);

  // What begins with this model evaluates as it did.
  json next = {{"model", {{"path", folder / "best"}, {"config", nullptr}}},
               {"data", {{"validation", folder / "text.txt"}}},
               {"training", {{"max_steps", 1}, {"eval_on_start", true}, {"eval_strategy", "steps"}}}};
  run(folder, next, "next");
  CHECK(records("next", "eval_loss").at(0).second == Approx(best->second).epsilon(1e-12));

  const auto output = [](const json& file, const auto& check, const auto& job) {
    const Config config = parse_config(file.dump(), "config");
    check(config);
    std::ostringstream out;
    run_on_ranks(config, out, {}, [&](RankContext& context) { job(config, context); });
    return out.str();
  };
  training.merge_patch(
      json{{"smp_options", {{"tensor_parallel_degree", 2}}}, {"mpi_options", {{"processes_per_host", 4}}}});
  const auto check = [](const Config& config, RankContext& context) { layout_job(config, 3, context); };
  CHECK_THAT(output(config_of(folder, training), check_layout, check),
             Contains("gives the same numbers as one process"));

  const GenerateOptions options{.prompts = {"line 1"}, .max_new_tokens = 4, .temperature = 0, .json = true};
  const auto written = [&](json changes) {
    changes["model"] = next["model"];
    return output(
        config_of(folder, changes), [&](const Config& config) { check_generate(config, options); },
        [&](const Config& config, RankContext& context) { generate_job(config, options, context); });
  };
  const std::string text = written(json::object());
  CHECK_THAT(text, Contains("\"tokens\""));
  CHECK(written({{"smp_options", {{"pipeline_parallel_degree", 2}}}, {"mpi_options", {{"processes_per_host", 2}}}}) ==
        text);
}

TEST_CASE("training measures the layers of a traced module once, and places them by these times") {
  const RunFolder folder("traced-measured");
  const auto train = [&](const json& changes = json::object()) {
    json file = config_of(folder, {{"training", {{"max_steps", 1}}},
                                   {"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}},
                                   {"mpi_options", {{"processes_per_host", 2}}}});
    file.merge_patch(changes);
    return train_in_process(parse_config(file.dump(), "config"));
  };
  const auto json_of = [&](const std::string& file) {
    std::ifstream in(folder / file);
    return json::parse(in);
  };
  CHECK_THAT(train(), Contains("the stages are based on " + (folder / "out/profile.json") + ", measured in "));
  json profile = json_of("out/profile.json");
  for (auto& layer : profile["layers"])
    if (layer["name"] == "embedding") layer["forward_seconds"] = 10;
  folder.write("out/profile.json", profile.dump());
  CHECK_THAT(train(), Contains("out/profile.json, measured earlier"));
  const json stages = json_of("out/plan.json")["stages"];
  CHECK(stages[0]["chunks"] == json::array({json::array({"embedding"})}));
  CHECK(stages[1]["chunks"][0].size() == 4);

  std::filesystem::remove(folder / "out/profile.json");
  const json by_hand = {{"auto_partition", false}, {"manual_partition", {2, 1}}};
  for (const json& unmeasured :
       {json{{"smp_options", by_hand}},
        json{{"smp_options", {{"pipeline_parallel_degree", 1}}}, {"mpi_options", {{"processes_per_host", 1}}}}}) {
    CAPTURE(unmeasured.dump());
    CHECK_THAT(train(unmeasured), !Contains("the stages are based on"));
    CHECK(!std::filesystem::exists(folder / "out/profile.json"));
  }
}

TEST_CASE("a traced module continues after a checkpoint on another layout") {
  const RunFolder folder("traced-resume");
  const auto whole = run(folder, json::object());
  const auto half = run(folder, {{"training", {{"save_strategy", "steps"}, {"save_steps", 2}}},
                                 {"smp_options", {{"tensor_parallel_degree", 2}}},
                                 {"mpi_options", {{"processes_per_host", 2}}}});
  check_close(half, whole);
  const json other_layout = {{"training", {{"resume_from_checkpoint", folder / "out/checkpoint-2"}}},
                             {"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}},
                             {"mpi_options", {{"processes_per_host", 2}}}};
  const auto rest = run(folder, other_layout, "rest");
  REQUIRE(rest.size() >= 2);
  check_close({rest.end() - 2, rest.end()}, {whole.end() - 2, whole.end()});
}

TEST_CASE("modules that declare their split give the results of torch's modules on every layout") {
  const RunFolder folder("traced-split");
  const auto model = [](const char* name) { return json{{"model", {{"config", {{"model_type", name}}}}}}; };
  const auto plain = run(folder, model("plain-net"));
  check_close(run(folder, model("split-net")), plain);
  for (const auto& [smp, ranks] : {std::pair(json{{"tensor_parallel_degree", 2}}, 2),
                                   {json{{"tensor_parallel_degree", 2}, {"optimize", "memory"}}, 2},
                                   {json{{"pipeline_parallel_degree", 2}, {"microbatches", 2}}, 2},
                                   {json::object(), 2},
                                   {json{{"pipeline_parallel_degree", 2},
                                         {"tensor_parallel_degree", 2},
                                         {"microbatches", 2},
                                         {"shard_optimizer_state", true},
                                         {"activation_checkpointing", "each"}},
                                    8}}) {
    CAPTURE(smp.dump(), ranks);
    json changes = model("split-net");
    changes["smp_options"] = smp;
    changes["mpi_options"] = {{"processes_per_host", ranks}};
    check_close(run(folder, changes), plain);
  }
}

TEST_CASE("a traced module trains with a loss that the program registers, on every layout") {
  const RunFolder folder("traced-loss");
  const auto with = [](const char* loss) {
    return json{{"model", {{"loss", {{"function", loss}, {"logits", "logits"}}}}}};
  };
  check_close(run(folder, with("entropy")), run(folder, json::object()));
  const auto one = run(folder, with("focal"));
  CHECK(one[0] < run(folder, json::object())[0]);
  json layout = with("focal");
  layout["smp_options"] = {
      {"pipeline_parallel_degree", 2}, {"tensor_parallel_degree", 2}, {"microbatches", 2}, {"optimize", "memory"}};
  layout["mpi_options"] = {{"processes_per_host", 8}};
  check_close(run(folder, layout), one);
}

TEST_CASE("the initial values of a traced module are a function of the seed") {
  const RunFolder folder("traced-seed");
  const auto first = [&](int64_t seed) {
    return run(folder, {{"training", {{"max_steps", 1}, {"seed", seed}, {"data_seed", 1}}}})[0];
  };
  CHECK(first(3) == first(3));
  CHECK(first(3) != first(4));
}

TEST_CASE("a traced module can be trained in the program's own loop") {
  const json config = {
      {"model", {{"config", {{"model_type", "traced-net"}, {"width", 8}}}}},
      {"data", {{"sequence_length", 8}}},
      {"training", {{"global_batch_size", 4}, {"max_steps", 20}, {"learning_rate", 0.01}, {"warmup_steps", 0}}},
      {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}}}};
  Trainer trainer(config.dump());
  const Tensor ids = at::arange(32).view({4, 8});
  const double before = trainer.step(ids).loss;
  for (int i = 0; i < 15; ++i) trainer.step(ids);
  CHECK(trainer.step(ids).loss < 0.9 * before);
}

TEST_CASE("a Trainer that continues with other buffers does not change those of another Trainer") {
  const RunFolder folder("traced-trainers");
  const json model = {{"model", {{"config", {{"model_type", "counting-net"}}}}}};
  run(folder, model, "one");
  run(folder,
      {{"model", {{"path", folder / "one"}, {"config", nullptr}}},
       {"training", {{"save_strategy", "steps"}, {"save_steps", 1}}}},
      "next");  // its buffers begin with those after four steps
  const json config = {{"model", {{"config", {{"model_type", "counting-net"}, {"width", 8}}}}},
                       {"data", {{"sequence_length", 8}}},
                       {"training", {{"global_batch_size", 4}, {"max_steps", 20}, {"learning_rate", 0.01}}},
                       {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}}}};
  const Tensor ids = at::arange(32).view({4, 8});
  const auto losses = [&](bool beside_another) {
    Trainer trainer(config.dump());
    std::optional<Trainer> continued;
    if (beside_another) continued.emplace(config.dump()).resume(folder / "next/checkpoint-1");
    std::vector<double> all;
    for (int i = 0; i < 3; ++i) all.push_back(trainer.step(ids).loss);
    return all;
  };
  CHECK(losses(true) == losses(false));
}

TEST_CASE("configs that do not fit a traced module are refused") {
  const RunFolder folder("traced-mistakes");
  const auto refused = [&](const json& changes, const std::string& message) {
    CHECK_THROWS_WITH(run(folder, changes), Contains(message));
  };
  refused({{"model", {{"inputs", {{"tokens", "input_ids"}}}}}}, "/model/inputs: ");
  refused({{"model", {{"loss", {{"function", "unknown"}}}}}}, "a loss that your program registers");
  refused({{"model", {{"loss", "loss"}}}}, "returns no floating-point tensor \"loss\"");
  refused({{"model", {{"config", {{"width", nullptr}}}}}}, "width");
  refused({{"task", "masked-lm"}}, "causal-lm");
  refused({{"training", {{"neftune_noise_alpha", 5}}}}, "/training/neftune_noise_alpha: ");
  refused({{"training", {{"attention_in_fp32", true}}}}, "its own attention");
  refused({{"data", {{"sequence_length", 40}}}}, "fails with a batch of 1 samples of 40 tokens: index out of range");
  refused({{"model", {{"config", {{"model_type", "mixing-net"}}}}}},
          "/model/config/model_type: model mixing-net: the call to aten::mean.dim in words mixes samples");
}

}  // namespace shardline::traced_model_test
