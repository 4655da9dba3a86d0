// The cost of a model that is a program instead of one of the built-in families; prints one JSON line.
//
//   bench_program steps [--rounds 20] [--batch 4] [--length 128] [--width 768] [--dropout 0.1] [--type fp32|bf16|fp16]
//       Training steps of GPT-2 124M as a torch::nn::Module that is traced and as the built-in family, alternately, in
//       one process.
//   bench_program interpreter [--rounds 50] [--batch 4] [--length 128] [--width 768]
//       A traced model of two blocks, run by the interpreter and by its module, alternately: the forward pass, and
//       forward and backward. Both run ATen's products and operators, so they differ only in what makes the calls.
//
// A ratio is that of the medians, and its spread is that of the ratios of rounds. On a shared machine, compare the
// shortest times, too, and the processor's seconds.
#include <sys/resource.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/comm/clock.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/config/config.h"
#include "engine/data/dataset/repeated_batch.h"
#include "engine/launch/start_ranks.h"
#include "engine/run/median.h"
#include "models/families/families.h"
#include "models/program/interpreter.h"
#include "models/program/trace/traced_archive.h"
#include "models/traced/traced_family.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tools/bench_main.h"

using namespace shardline;

namespace {

constexpr const char* kTracedGpt2 = "traced-gpt2";

struct Options {
  int rounds = 0;
  int64_t batch = 4, length = 128, width = 768;
  double dropout = 0.1;
  std::string type = "fp32";
};

// ---- GPT-2 as a user would write it

struct Sizes {
  int64_t words = 50257, positions = 1024, width = 768, heads = 12, blocks = 12;
  double dropout = 0;
};

struct Block : torch::nn::Module {
  explicit Block(const Sizes& s)
      : sizes(s),
        norm1(torch::nn::LayerNormOptions({s.width})),
        norm2(torch::nn::LayerNormOptions({s.width})),
        qkv(s.width, 3 * s.width),
        out(s.width, s.width),
        up(s.width, 4 * s.width),
        down(4 * s.width, s.width) {
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto by_head = [&](const torch::Tensor& y) {
      return y.view({y.size(0), y.size(1), sizes.heads, -1}).transpose(1, 2);
    };
    const auto parts = qkv(norm1(x)).split(sizes.width, -1);
    const auto mixed = torch::scaled_dot_product_attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), {},
                                                           sizes.dropout, /*is_causal=*/true);
    x = x + torch::dropout(out(mixed.transpose(1, 2).flatten(2)), sizes.dropout, is_training());
    return x + torch::dropout(down(torch::gelu(up(norm2(x)), "tanh")), sizes.dropout, is_training());
  }
  Sizes sizes;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
};

struct Gpt2 : torch::nn::Module {
  explicit Gpt2(const Sizes& s)
      : sizes(s),
        words(s.words, s.width),
        positions(s.positions, s.width),
        norm(torch::nn::LayerNormOptions({s.width})) {
    register_module("words", words);
    register_module("positions", positions);
    register_module("blocks", blocks);
    for (int64_t i = 0; i < s.blocks; ++i) blocks->push_back(std::make_shared<Block>(s));
    register_module("norm", norm);
    torch::nn::init::normal_(words->weight, 0, 0.02);
    torch::nn::init::normal_(positions->weight, 0, 0.02);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    auto x = words(ids) + positions(torch::arange(ids.size(1), ids.options()));
    x = torch::dropout(x, sizes.dropout, is_training());
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return torch::linear(norm(x), words->weight);
  }
  Sizes sizes;
  torch::nn::Embedding words, positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
};

TracedModel traced_model(const Sizes& sizes) {
  return {.vocab_size = sizes.words, .max_positions = sizes.positions, .make = [sizes] {
            return traced_module(std::make_shared<Gpt2>(sizes), &Gpt2::forward);
          }};
}

// ---- times

double processor_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + 1e-6 * t.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Times {
  std::vector<double> seconds, processor;

  void measure(const std::function<void()>& work) {
    const double begin = steady_seconds(), busy = processor_seconds();
    work();
    seconds.push_back(steady_seconds() - begin);
    processor.push_back(processor_seconds() - busy);
  }
};

nlohmann::ordered_json report(const Times& times) {
  return {{"median_seconds", median(times.seconds)},
          {"shortest_seconds", *std::min_element(times.seconds.begin(), times.seconds.end())},
          {"median_processor_seconds", median(times.processor)}};
}

// How much longer `a` takes than `b`.
nlohmann::ordered_json ratios(const Times& a, const Times& b) {
  std::vector<double> of_rounds;
  for (size_t i = 0; i < a.seconds.size(); ++i) of_rounds.push_back(a.seconds[i] / b.seconds[i]);
  std::sort(of_rounds.begin(), of_rounds.end());
  const auto shortest = [](const Times& t) { return *std::min_element(t.seconds.begin(), t.seconds.end()); };
  return {{"of_medians", median(a.seconds) / median(b.seconds)},
          {"of_rounds", {of_rounds.front(), median(of_rounds), of_rounds.back()}},
          {"of_shortest", shortest(a) / shortest(b)},
          {"of_processor_seconds", median(a.processor) / median(b.processor)}};
}

// Runs the two alternately; the first round is a warm-up.
std::pair<Times, Times> in_turns(int rounds, const std::function<void()>& a, const std::function<void()>& b) {
  Times of_a, of_b;
  a();
  b();
  for (int round = 0; round < rounds; ++round) {
    of_a.measure(a);
    of_b.measure(b);
  }
  return {of_a, of_b};
}

// ---- steps

int64_t heads_of(const Options& options) {
  return std::max<int64_t>(options.width / 64, 1);
}

Config config_of(const Options& options, const nlohmann::json& model) {
  nlohmann::json config = {{"model", {{"config", model}}},
                           {"data", {{"format", "memory"}, {"sequence_length", options.length}}},
                           {"training",
                            {{"global_batch_size", options.batch},
                             {"learning_rate", 1e-4},
                             {"lr_scheduler_type", "constant"},
                             {"weight_decay", 0.0},
                             {"save_strategy", "no"}}}};
  if (options.type != "fp32") config["training"][options.type] = true;
  return parse_config(config.dump(), "bench_program");
}

// A model in training.
class Trained {
 public:
  Trained(const Options& options, const nlohmann::json& model, RankContext& context)
      : config_(completed_config(config_of(options, model), *context.world, /*trains=*/true)),
        parts_(make_parts(config_, context)),
        data_(options.batch, options.length, parts_.model.spec.vocab_size, 1234),
        trainer_({config_, parts_.plan, parts_.model, parts_.groups, context.device}, 2 * options.rounds + 2) {
    fill_parameters(config_.model, parts_.model, config_.training.seed, trainer_.parameters());
  }

  void step() { loss = trainer_.train_step(data_, ++step_).loss; }

  double loss = 0;

 private:
  const Config config_;
  JobParts parts_;
  RepeatedBatch data_;
  RankTrainer trainer_;
  int64_t step_ = 0;
};

void measure_steps(const Options& options, RankContext& context) {
  Trained traced(options, {{"model_type", kTracedGpt2}}, context);
  Trained built_in(options,
                   {{"model_type", "gpt2"},
                    {"n_embd", options.width},
                    {"n_head", heads_of(options)},
                    {"attn_pdrop", options.dropout},
                    {"embd_pdrop", options.dropout},
                    {"resid_pdrop", options.dropout}},
                   context);
  const auto [of_traced, of_built_in] = in_turns(
      options.rounds, [&] { traced.step(); }, [&] { built_in.step(); });
  std::cout << nlohmann::ordered_json{{"type", options.type},
                                      {"batch", options.batch},
                                      {"length", options.length},
                                      {"dropout", options.dropout},
                                      {"products", products_in_use()},
                                      {"traced", report(of_traced)},
                                      {"built_in", report(of_built_in)},
                                      {"losses", {traced.loss, built_in.loss}},
                                      {"built_in_over_traced", ratios(of_built_in, of_traced)}}
                   .dump()
            << std::endl;
}

int run_steps(const Options& options) {
  add_family(kTracedGpt2, family_of_traced(kTracedGpt2, HeadChoice::Kind::causal_lm, [&](const nlohmann::json&) {
               return traced_model({.width = options.width, .heads = heads_of(options), .dropout = options.dropout});
             }));
  const Config config = config_of(options, {{"model_type", "gpt2"}});
  run_on_ranks(config, std::cout, console_of_job(), [&](RankContext& context) { measure_steps(options, context); });
  return 0;
}

// ---- interpreter

int run_interpreter(const Options& options) {
  use_products(ProductLibrary::aten);
  use_kernels(KernelLibrary::aten);
  const Sizes sizes{.words = 100, .positions = options.length, .width = options.width, .heads = 4, .blocks = 2};
  const Pt2Archive archive = traced_archive(traced_model(sizes), {.count = sizes.words}, 1, options.length);
  GraphPart part;
  part.nodes.resize(archive.graph.nodes.size());
  std::iota(part.nodes.begin(), part.nodes.end(), 0);
  for (const auto& input : archive.graph.inputs) part.inputs.push_back(input.value);
  for (const auto& output : archive.graph.outputs) part.outputs.push_back(output.value);
  const Interpreter interpreter(archive.graph, part, at::kFloat, at::kCPU);

  Gpt2 module(sizes);
  std::map<std::string, at::Tensor> parameters;
  for (const auto& parameter : module.named_parameters()) {
    parameters[parameter.key()] = parameter.value();
    parameters[parameter.key()].mutable_grad() = torch::zeros_like(parameter.value());
  }
  const at::Tensor ids = torch::randint(sizes.words, {options.batch, options.length}, at::kLong);
  const auto by_module = [&] { return module.forward(ids); };
  const auto by_interpreter = [&] {
    std::vector<c10::IValue> inputs;
    for (const auto& input : archive.graph.inputs)
      inputs.push_back(input.kind == GraphInput::Kind::parameter ? parameters.at(input.name)
                       : input.kind == GraphInput::Kind::user    ? ids
                                                                 : archive.constants.at(input.name));
    return interpreter.run(std::move(inputs), nullptr)[0].toTensor();
  };
  {
    const at::NoGradGuard no_grad;
    const double difference = (by_module() - by_interpreter()).abs().max().item<double>();
    if (difference > 1e-4) throw RunError(cat("the two differ by ", difference));
  }
  nlohmann::ordered_json line = {{"batch", options.batch}, {"length", options.length}, {"width", options.width}};
  const auto add = [&](const char* name, const std::pair<Times, Times>& times) {
    line[name] = {{"interpreter", report(times.first)},
                  {"module", report(times.second)},
                  {"interpreter_over_module", ratios(times.first, times.second)}};
  };
  const auto without_grad = [](const auto& run) {
    return [run] {
      const at::NoGradGuard no_grad;
      run();
    };
  };
  add("forward", in_turns(options.rounds, without_grad(by_interpreter), without_grad(by_module)));
  const auto with_backward = [](const auto& run) { return [run] { run().sum().backward(); }; };
  add("forward_backward", in_turns(options.rounds, with_backward(by_interpreter), with_backward(by_module)));
  std::cout << line.dump() << std::endl;
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("bench_program: the cost of programs");
  app.require_subcommand(1);
  CLI::App* steps = app.add_subcommand("steps", "a traced GPT-2 124M and the built-in one");
  CLI::App* interpreter = app.add_subcommand("interpreter", "the interpreter and the module that was traced");
  for (CLI::App* command : {steps, interpreter}) {
    command->add_option("--rounds", options.rounds, "number of rounds; 0: 20 for steps, 50 for interpreter")
        ->check(CLI::NonNegativeNumber);
    command->add_option("--batch", options.batch, "samples in a batch")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    command->add_option("--length", options.length, "tokens in a sample")
        ->capture_default_str()
        ->check(CLI::Range(2, 1024));
    command->add_option("--width", options.width, "features of a token")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
  }
  steps->add_option("--dropout", options.dropout)->capture_default_str()->check(CLI::Range(0.0, 0.9));
  steps->add_option("--type", options.type)->capture_default_str()->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  CLI11_PARSE(app, argc, argv);
  if (options.rounds == 0) options.rounds = *steps ? 20 : 50;
  return *steps ? run_steps(options) : run_interpreter(options);
}

}  // namespace

int main(int argc, char** argv) {
  return bench_main(argc, argv, run);
}
