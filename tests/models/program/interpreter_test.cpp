#include "models/program/interpreter.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <numeric>

#include "core/error.h"
#include "models/program/graph_flow.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::interpreter_test {
namespace {

using namespace words_program;

// The whole program, with leaf tensors as its parameters.
class WholeProgram {
 public:
  explicit WholeProgram(at::ScalarType floating = at::kFloat, const std::string& file = path())
      : archive_(read_pt2(file)) {
    part_.nodes.resize(archive_.graph.nodes.size());
    std::iota(part_.nodes.begin(), part_.nodes.end(), 0);
    for (const auto& input : archive_.graph.inputs) part_.inputs.push_back(input.value);
    for (const auto& output : archive_.graph.outputs) part_.outputs.push_back(output.value);
    for (const auto& [name, entry] : archive_.weights->tensors())
      leaves[name] = archive_.weights->tensor(name).to(floating, false, /*copy=*/true).requires_grad_(true);
    for (const auto& [name, constant] : archive_.constants)
      constants_[name] = constant.is_floating_point() ? constant.to(floating) : constant;
    interpreter_.emplace(archive_.graph, part_, floating, at::kCPU);
  }

  // Returns loss and logits.
  std::vector<c10::IValue> run(const at::Tensor& ids, const RandomCalls* random = nullptr) const {
    std::vector<c10::IValue> inputs;
    for (const auto& input : archive_.graph.inputs)
      if (input.kind == GraphInput::Kind::parameter)
        inputs.push_back(leaves.at(input.name));
      else if (input.kind == GraphInput::Kind::user)
        inputs.push_back(input.name == "attention_mask" ? at::ones_like(ids) : ids);
      else
        inputs.push_back(constants_.at(input.name));
    return interpreter_->run(std::move(inputs), random);
  }

  std::map<std::string, at::Tensor> leaves;

 private:
  Pt2Archive archive_;
  GraphPart part_;
  std::map<std::string, at::Tensor> constants_;
  std::optional<Interpreter> interpreter_;
};

}  // namespace

TEST_CASE("a program computes what PyTorch computes with it, and its gradients", "[interpreter]") {
  const auto wanted = expected();
  WholeProgram program;
  const auto result = program.run(ids());
  CHECK(result[0].toTensor().item<double>() == Approx(wanted["loss"].get<double>()).epsilon(1e-6));
  const auto last = result[1].toTensor().select(1, ids().size(1) - 1);
  for (int64_t sample = 0; sample < last.size(0); ++sample)
    for (int64_t word = 0; word < kWords; ++word)
      CHECK(last[sample][word].item<double>() ==
            Approx(wanted["last_logits"][sample][word].get<double>()).epsilon(1e-5).margin(1e-6));
  torch::autograd::backward({result[0].toTensor()}, {});
  for (const auto& [name, gradient] : wanted["gradients"].items()) {
    CAPTURE(name);
    const auto expected_values = gradient.get<std::vector<double>>();
    const auto flat = program.leaves.at(name).grad().flatten();
    REQUIRE(flat.numel() == std::ssize(expected_values));
    for (size_t i = 0; i < expected_values.size(); ++i)
      CHECK(flat[i].item<double>() == Approx(expected_values[i]).epsilon(1e-4).margin(1e-7));
  }
}

TEST_CASE("a program runs with other numbers and lengths of samples", "[interpreter]") {
  const WholeProgram program;
  const at::NoGradGuard no_grad;
  const auto shorter = ids().narrow(0, 0, 2).narrow(1, 0, 3);
  CHECK(program.run(shorter)[0].toTensor().item<double>() ==
        Approx(expected()["loss_of_shorter"].get<double>()).epsilon(1e-6));
  CHECK(!program.run(ids())[0].toTensor().requires_grad());
  CHECK(std::isfinite(program.run(ids().narrow(0, 0, 1))[0].toTensor().item<double>()));  // one sample
}

TEST_CASE("a program runs in float64 throughout", "[interpreter]") {
  const WholeProgram program(at::kDouble);
  const auto result = program.run(ids());
  CHECK(result[0].toTensor().scalar_type() == at::kDouble);
  CHECK(result[1].toTensor().scalar_type() == at::kDouble);
  CHECK(result[0].toTensor().item<double>() == Approx(expected()["loss"].get<double>()).epsilon(1e-6));
}

TEST_CASE("the caller provides dropout masks, and nothing is dropped in evaluation", "[interpreter]") {
  const ScratchDirectory scratch;
  write_changed_json(scratch / "dropped.pt2", "models/model.json", [](nlohmann::json& model) {
    for (auto& node : model["graph_module"]["graph"]["nodes"])
      if (node["target"] == "torch.ops.aten.dropout.default") node["inputs"][1]["arg"]["as_float"] = 0.25;
  });
  const WholeProgram program(at::kFloat, scratch / "dropped.pt2");
  std::vector<int> sites;
  const RandomCalls random{.dropout = [&](const at::Tensor& x, double probability, int site) {
    CHECK(probability == 0.25);
    CHECK(x.sizes() == std::vector<int64_t>{ids().size(0), ids().size(1), kFeatures});
    sites.push_back(site);
    return x * 0;
  }};
  const auto dropped = program.run(ids(), &random);
  CHECK(sites == std::vector<int>{0, 1, 2});
  CHECK(dropped[1].toTensor().abs().max().item<double>() == 0);
  CHECK(program.run(ids())[0].toTensor().item<double>() == Approx(expected()["loss"].get<double>()).epsilon(1e-6));
}

TEST_CASE("a call that fails is named", "[interpreter]") {
  const WholeProgram program;
  const auto too_long = ids().repeat({1, 2});  // beyond the table of positions
  CHECK_THROWS_MATCHES(program.run(too_long), RunError, Catch::Matchers::Predicate<RunError>([](const RunError& error) {
                         return std::string(error.what()).find("call to aten::embedding failed: ") != std::string::npos;
                       }));
}

TEST_CASE("results of attention can be viewed as in the export, for any strides", "[interpreter]") {
  constexpr int64_t kLength = 5, kSamples = 2, kHeads = 3, kFeatures = 4;
  const auto ints = [](std::vector<int64_t> list) { return GraphArgument{.constant = c10::List<int64_t>(list)}; };
  // As in torch.nn.MultiheadAttention: [length, batch, heads, features] in memory.
  Graph graph;
  for (const char* name : {"x", "heads", "seen", "ordered", "rows"})
    graph.values.push_back({.name = name, .dtype = at::kFloat, .sizes = {}});
  graph.inputs = {{GraphInput::Kind::parameter, "x", 0}};
  const auto add = [&](const char* name, std::vector<GraphArgument> arguments) {
    const int result = std::ssize(graph.nodes) + 1;
    graph.nodes.push_back(
        {.name = name, .overload = "", .arguments = std::move(arguments), .results = {{0, -1, result}}, .modules = {}});
  };
  const auto of = [](int value) { return GraphArgument{.constant = {}, .value = value, .items = {}}; };
  const auto given = [](c10::IValue constant) { return GraphArgument{.constant = std::move(constant)}; };
  add("aten::permute", {of(0), ints({1, 2, 0, 3})});
  add("aten::scaled_dot_product_attention",
      {of(1), of(1), of(1), given({}), given(0.0), given(false), given({}), given(false)});
  add("aten::permute", {of(2), ints({2, 0, 1, 3})});
  add("aten::view", {of(3), ints({kLength * kSamples, kHeads * kFeatures})});
  make_views_reshapes(graph);

  const auto x = at::arange(kLength * kSamples * kHeads * kFeatures, at::kFloat)
                     .sin()
                     .view({kLength, kSamples, kHeads, kFeatures});
  const auto heads = x.permute({1, 2, 0, 3});
  const auto wanted = at::scaled_dot_product_attention(heads, heads, heads).permute({2, 0, 1, 3}).reshape({10, 12});
  const GraphPart part{{0, 1, 2, 3}, {0}, {4}};
  const RandomCalls drops{.dropout = [](const at::Tensor& p, double, int) { return p; }};  // keeps the probabilities
  for (const double probability : {0.0, 0.5}) {
    graph.nodes[1].arguments[4] = given(probability);
    const Interpreter interpreter(graph, part, at::kFloat, at::kCPU);
    CHECK(at::allclose(interpreter.run({x}, &drops)[0].toTensor(), wanted, 1e-5, 1e-6));
  }
}

}  // namespace shardline::interpreter_test
