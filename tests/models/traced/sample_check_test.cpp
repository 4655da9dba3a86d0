#include "models/traced/sample_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <algorithm>

#include "core/error.h"
#include "models/program/layers/program_layers.h"
#include "models/program/trace/traced_archive.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::sample_check_test {
namespace {

using at::Tensor;
using Catch::Matchers::Contains;

constexpr int64_t kWords = 13, kWidth = 6;

struct Net : torch::nn::Module {
  Net()
      : words(kWords, kWidth),
        out(kWidth, kWords),
        lstm(torch::nn::LSTMOptions(kWidth, kWidth)),
        batch_first(torch::nn::LSTMOptions(kWidth, kWidth).batch_first(true).num_layers(2)) {
    register_module("words", words);
    register_module("blocks", blocks);
    for (int i = 0; i < 3; ++i) blocks->push_back(torch::nn::Linear(kWidth, kWidth));
    register_module("out", out);
    register_module("lstm", lstm);
    register_module("batch_first", batch_first);
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList blocks;
  torch::nn::Linear out;
  torch::nn::LSTM lstm, batch_first;
};

// x: [batch, length, features], the result of the second block
using Mix = std::function<Tensor(Net& net, const Tensor& x, const Tensor& mask)>;

void check(const Mix& mix, bool has_mask = false, bool has_biases = true) {
  TracedModel model{.vocab_size = kWords,
                    .arguments = {"input_ids"},
                    .make =
                        [=] {
                          const auto net = std::make_shared<Net>();
                          const at::NoGradGuard no_grad;
                          for (const auto& block : *net->blocks)
                            if (!has_biases) block->as<torch::nn::Linear>()->bias.zero_();
                          return TracedModule{net, [net, mix](const std::vector<Tensor>& arguments) {
                                                Tensor x = net->words(arguments[0]);
                                                const Tensor mask = arguments.size() > 1 ? arguments[1] : Tensor();
                                                for (size_t i = 0; i < net->blocks->size(); ++i) {
                                                  x = net->blocks->ptr<torch::nn::LinearImpl>(i)->forward(x);
                                                  if (i == 1) x = mix(*net, x, mask);
                                                }
                                                return std::vector<Tensor>{net->out(x)};
                                              }};
                        },
                    .name = "net"};
  if (has_mask) model.arguments.push_back("attention_mask");
  const auto program = cut_program(traced_archive(model, {}, 1, 8), {.loss_function = "cross_entropy"});
  check_samples(program, spec_of_program(program, 8), 8);
}

void check_refused(const Mix& mix, const std::string& call) {
  CAPTURE(call);
  CHECK_THROWS_WITH(check(mix), Contains("model net: the call to " + call + " in blocks.1 mixes samples"));
}

// An exported program, changed before it is cut.
void check_file(const std::string& name, const ProgramUse& use, const std::function<void(Graph&)>& change = {}) {
  Pt2Archive archive = read_pt2(golden("program/" + name + ".pt2"));
  if (change) change(archive.graph);
  const auto program = cut_program(std::move(archive), use);
  const int64_t length = program->source_rows() > 0 ? program->source_rows() + 4 : 8;
  check_samples(program, spec_of_program(program, length), length);
}

// Replaces the calls of an operator, in order, by a reversal along one of these dimensions.
std::function<void(Graph&)> reversed(const std::string& name, const std::vector<int64_t>& dimensions) {
  return [=](Graph& graph) {
    size_t found = 0;
    for (auto& node : graph.nodes)
      if (node.name == name && found < dimensions.size())
        node = {.name = "aten::flip",
                .arguments = {node.arguments[0], {.constant = c10::IValue(std::vector{dimensions[found++]})}},
                .results = node.results,
                .modules = node.modules};
    CHECK(found == dimensions.size());
  };
}

int& output(Graph& graph, const std::string& name) {
  return std::ranges::find(graph.outputs, name, &GraphOutput::name)->value;
}

// Appends a call of the program itself, outside of its named modules. Returns the value that it makes.
int add_call(Graph& graph, const std::string& name, const std::string& overload, std::vector<GraphArgument> arguments,
             at::ScalarType dtype = at::kFloat) {
  graph.values.push_back({.name = name, .dtype = dtype, .sizes = {}});
  const int made = std::ssize(graph.values) - 1;
  graph.nodes.push_back({.name = name,
                         .overload = overload,
                         .arguments = std::move(arguments),
                         .results = {{0, -1, made}},
                         .modules = {{.path = "", .type = "Net"}}});
  return made;
}

void add_to_loss(Graph& graph, int value) {
  const int loss = output(graph, "loss");
  output(graph, "loss") = add_call(graph, "aten::add", "Tensor", {{.value = loss}, {.value = value}, {.constant = 1}});
}

// Adds to the loss the squares of the logits' means over all tokens of the batch.
void add_balance(Graph& graph) {
  const c10::IValue tokens(std::vector<int64_t>{0, 1});
  const int mean = add_call(graph, "aten::mean", "dim",
                            {{.value = output(graph, "logits")}, {.constant = tokens}, {.constant = false}, {}});
  const int square = add_call(graph, "aten::mul", "Tensor", {{.value = mean}, {.value = mean}});
  add_to_loss(graph, add_call(graph, "aten::sum", "", {{.value = square}, {}}));
}

// Adds to the loss the cross entropy without the first row.
void add_shorter_entropy(Graph& graph) {
  const auto of_all = *std::ranges::find(graph.nodes, std::string("aten::cross_entropy_loss"), &GraphNode::name);
  auto arguments = of_all.arguments;
  for (const int i : {0, 1}) {
    const auto dtype = graph.values[arguments[i].value].dtype;
    arguments[i].value = add_call(graph, "aten::slice", "Tensor",
                                  {arguments[i], {.constant = 0}, {.constant = 1}, {}, {.constant = 1}}, *dtype);
  }
  add_to_loss(graph, add_call(graph, of_all.name, of_all.overload, arguments));
}

const ProgramUse kPictures = {.predicts = ProgramUse::Predicts::segment,
                              .inputs = {{"pixel_values", "image"}, {"labels", "labels"}}};
const ProgramUse kSounds = {.predicts = ProgramUse::Predicts::target_row, .inputs = {{"input_features", "sound"}}};

}  // namespace

TEST_CASE("exported programs are checked on tokens and on tensors", "[samples]") {
  for (const char* name : {"words", "heads", "sections", "patches"}) {
    CAPTURE(name);
    check_file(name, {});
  }
  check_file("pairs", {.predicts = ProgramUse::Predicts::target_row});
  check_file("pictures", kPictures);
  check_file("sounds", kSounds);
}

TEST_CASE("a loss of batches that is not a mean of its samples' is refused as such", "[samples]") {
  CHECK_THROWS_WITH(check_file("words", {}, add_balance),
                    Contains("words.pt2: its loss, another scalar, is not a mean over samples or labels"));
}

TEST_CASE("a program that fails on the sequences of the plan is a mistake in the config", "[samples]") {
  CHECK_THROWS_MATCHES(
      check_file("words", {}, add_shorter_entropy), ConfigError,
      Catch::Matchers::Predicate<ConfigError>([](const ConfigError& error) {
        const std::string text = error.what();
        return text.starts_with("/model/path: ") &&
               text.find("layer head fails on 2 samples of 8 tokens (") != std::string::npos &&
               text.find("a part of its loss, cross_entropy + cross_entropy, counts 13 labels of the 14") !=
                   std::string::npos;
      }));
}

TEST_CASE("one of several blocks that call the same operators is found if its arguments mix samples", "[samples]") {
  check_file("words", {}, reversed("aten::gelu", {2, 2}));
  CHECK_THROWS_WITH(check_file("words", {}, reversed("aten::gelu", {2, 0})),
                    Contains("words.pt2: the call to aten::flip in blocks.1 mixes samples"));
  check_file("pictures", kPictures, reversed("aten::tanh", {2, 1}));
  CHECK_THROWS_WITH(check_file("pictures", kPictures, reversed("aten::tanh", {2, 0})),
                    Contains("pictures.pt2: the call to aten::flip in blocks.1 mixes samples"));
}

TEST_CASE("programs that compute each sample separately are accepted", "[samples]") {
  check([](Net&, const Tensor& x, const Tensor&) { return at::tanh(x).cumsum(1).flip(1); });
  check([](Net&, const Tensor& x, const Tensor&) { return x.flatten(0, 1).softmax(-1).view_as(x); });
  check([](Net&, const Tensor& x, const Tensor&) { return x.transpose(0, 1).tanh().transpose(0, 1); });
  check([](Net&, const Tensor& x, const Tensor&) {
    return at::matmul(at::softmax(at::matmul(x, x.transpose(1, 2)), -1), x);
  });
  // Samples are sorted, and then put back in order.
  check([](Net&, const Tensor& x, const Tensor&) {
    const auto order = x.select(1, 0).select(1, 0).argsort();
    return x.index_select(0, order).tanh().index_select(0, order.argsort());
  });
}

TEST_CASE("calls that mix samples are named", "[samples]") {
  check_refused([](Net&, const Tensor& x, const Tensor&) { return x - x.mean(0, true); }, "aten::mean.dim");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return at::softmax(x, 0); }, "aten::softmax.int");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return x + at::cumsum(x, 0); }, "aten::cumsum");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return at::flip(x, {0}); }, "aten::flip");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return at::roll(x, 1, 0); }, "aten::roll");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return at::roll(x.flatten(0, 1), 1, 0).view_as(x); },
                "aten::roll");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return std::get<0>(x.sort(0)); }, "aten::sort");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return x + x.select(0, 0); }, "aten::select.int");
  check_refused(
      [](Net&, const Tensor& x, const Tensor&) {
        const auto rows = x.flatten(0, 1);
        return (rows.matmul(rows.t().matmul(rows))).view_as(x);
      },
      "aten::matmul");
  check_refused(
      [](Net&, const Tensor& x, const Tensor&) {
        const auto first = x.select(1, 0);
        return x + at::softmax(first.matmul(first.t()), -1).matmul(first).unsqueeze(1);
      },
      "aten::matmul");
  check_refused([](Net&, const Tensor& x, const Tensor&) { return x / x.abs().max(); }, "aten::max");
}

TEST_CASE("a recurrent module is accepted if it runs along the samples, and named if it runs over the batch",
          "[samples]") {
  check([](Net& net, const Tensor& x, const Tensor&) { return std::get<0>(net.batch_first->forward(x)); });
  check([](Net& net, const Tensor& x, const Tensor&) {
    return std::get<0>(net.lstm->forward(x.transpose(0, 1))).transpose(0, 1);
  });
  const Mix mix = [](Net& net, const Tensor& x, const Tensor&) { return std::get<0>(net.lstm->forward(x)); };
  CHECK_THROWS_WITH(check(mix), Contains("model net: the call to aten::lstm.input in lstm mixes samples"));
}

TEST_CASE("a recurrent module with dropout of its own is refused because it draws random numbers", "[samples]") {
  const Mix mix = [](Net& net, const Tensor& x, const Tensor&) {
    net.batch_first->options.dropout(0.1);
    return std::get<0>(net.batch_first->forward(x));
  };
  CHECK_THROWS_WITH(check(mix),
                    Contains("model net in batch_first calls aten::lstm.input; it draws from torch's random "
                             "generator unless its dropout is 0"));
}

TEST_CASE("attention to padding that begins when biases are trained is detected", "[samples]") {
  // Rows of padding begin as 0, and stay 0 as long as biases are.
  const Mix next = [](Net&, const Tensor& x, const Tensor& mask) {
    const auto after = at::cat({x.slice(1, 1), at::zeros_like(x.slice(1, 0, 1))}, 1);
    return x + after + (mask.unsqueeze(2) * 0).to(x.scalar_type());
  };
  CHECK_THROWS_WITH(check(next, true, /*has_biases=*/false), Contains("depends on padding"));
}

TEST_CASE("programs that attend to padding are refused, and those that hide it are not", "[samples]") {
  const auto mean = [](const Tensor& x, const Tensor& weights) {
    return x + (x * weights).sum(1, true) / weights.sum(1, true);
  };
  check([&](Net&, const Tensor& x, const Tensor& mask) { return mean(x, mask.unsqueeze(2).to(x.scalar_type())); },
        true);
  CHECK_THROWS_WITH(check([&](Net&, const Tensor& x,
                              const Tensor& mask) { return mean(x, mask.unsqueeze(2).to(x.scalar_type()) * 0 + 1); },
                          true),
                    Contains("what layer blocks.") && Contains("depends on padding"));
}

}  // namespace shardline::sample_check_test
