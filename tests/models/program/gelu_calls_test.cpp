#include "models/program/gelu_calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "models/program/interpreter.h"
#include "models/program/trace/traced_graph.h"

#include "tests/catch.h"

namespace shardline::gelu_calls_test {
namespace {

using Results = std::vector<at::Tensor>;
using Function = std::function<Results(const at::Tensor& x)>;

at::Tensor numbers(int64_t batch, int64_t length, at::ScalarType type) {
  return ((at::arange(batch * length, at::kDouble) * 12.9898).sin() * 4).view({batch, length}).to(type);
}

TracedGraph traced(const Function& function) {
  const TracedFunction traced{
      .name = "function",
      .argument_names = {"x"},
      .arguments = [](const BatchSize& size, int) { return Results{numbers(size.batch, size.length, at::kFloat)}; },
      .further_sizes = {},
      .owned = {},
      .module_types = {},
      .run = [function](const Results& arguments) { return function(arguments[0]); }};
  return trace_graph(traced);
}

// As an export writes it: numbers are constants in the calls.
void write_numbers(TracedGraph& traced) {
  for (auto& node : traced.graph.nodes)
    for (auto& argument : node.arguments)
      for (const auto& input : traced.graph.inputs)
        if (argument.value == input.value && traced.constants.contains(input.name))
          argument = {.constant = traced.constants.at(input.name).item<double>(), .as = GraphArgument::As::tensor};
}

std::vector<std::string> calls(const TracedGraph& traced) {
  std::vector<std::string> names;
  for (const auto& node : traced.graph.nodes) names.push_back(node.text());
  return names;
}

at::Tensor first_result(const TracedGraph& traced) {
  GraphPart part{.nodes = std::vector<int>(traced.graph.nodes.size())};
  std::iota(part.nodes.begin(), part.nodes.end(), 0);
  std::vector<c10::IValue> inputs;
  for (const auto& input : traced.graph.inputs) {
    part.inputs.push_back(input.value);
    inputs.push_back(input.kind == GraphInput::Kind::user ? numbers(3, 7, at::kDouble)
                                                          : traced.constants.at(input.name));
  }
  part.outputs = {traced.graph.outputs[0].value};
  return Interpreter(traced.graph, part, at::kDouble, at::kCPU).run(std::move(inputs), nullptr)[0].toTensor();
}

const double kSlope = std::sqrt(2 / M_PI);

}  // namespace

TEST_CASE("GELUs that are spelled out are replaced by one call", "[gelu_calls]") {
  const auto [function, kind] = GENERATE(table<Function, std::string>(
      {{[](const at::Tensor& x) { return Results{0.5 * x * (1.0 + ((x + 0.044715 * x.pow(3.0)) * kSlope).tanh())}; },
        "tanh"},
       {[](const at::Tensor& x) { return Results{x * 0.5 * (1.0 + (x * kSlope * (1.0 + 0.044715 * x * x)).tanh())}; },
        "tanh"},
       {[](const at::Tensor& x) { return Results{x * 0.5 * (1.0 + (x / std::sqrt(2.0)).erf())}; }, "none"},
       {[](const at::Tensor& x) { return Results{(x + x * (x * std::sqrt(0.5)).erf()) / 2}; }, "none"}}));
  for (const bool is_exported : {false, true}) {
    CAPTURE(is_exported);
    TracedGraph graph = traced(function);
    if (is_exported) write_numbers(graph);
    const at::Tensor before = first_result(graph);
    make_gelu_calls(graph.graph, graph.constants);
    REQUIRE(calls(graph) == std::vector<std::string>{"aten::gelu"});
    CHECK(graph.graph.nodes[0].arguments[1].constant == c10::IValue(kind));
    CHECK((first_result(graph) - before).abs().max().item<double>() < 1e-14);
  }
}

TEST_CASE("a GELU is found among other calls, and several of them", "[gelu_calls]") {
  const auto gelu = [](const at::Tensor& x) { return 0.5 * x * (1.0 + ((x + 0.044715 * x.pow(3.0)) * kSlope).tanh()); };
  TracedGraph graph = traced([&](const at::Tensor& x) { return Results{gelu(gelu(x + 1.0) * x).tanh()}; });
  const at::Tensor before = first_result(graph);
  make_gelu_calls(graph.graph, graph.constants);
  CHECK(calls(graph) ==
        std::vector<std::string>{"aten::add.Scalar", "aten::gelu", "aten::mul.Tensor", "aten::gelu", "aten::tanh"});
  CHECK((first_result(graph) - before).abs().max().item<double>() < 1e-14);
}

TEST_CASE("calls that are no GELU, or whose results are read elsewhere, are not replaced", "[gelu_calls]") {
  const auto function =
      GENERATE(Function([](const at::Tensor& x) {  // another constant
                 return Results{0.5 * x * (1.0 + ((x + 0.045 * x.pow(3.0)) * kSlope).tanh())};
               }),
               Function([](const at::Tensor& x) {  // twice as much
                 return Results{x * (1.0 + ((x + 0.044715 * x.pow(3.0)) * kSlope).tanh())};
               }),
               Function([](const at::Tensor& x) {  // another power
                 return Results{0.5 * x * (1.0 + ((x + 0.044715 * x.pow(2.0)) * kSlope).tanh())};
               }),
               Function([](const at::Tensor& x) {  // of something else
                 return Results{0.5 * (x + 1.0) * (1.0 + ((x + 0.044715 * x.pow(3.0)) * kSlope).tanh())};
               }),
               Function([](const at::Tensor& x) {
                 const at::Tensor t = ((x + 0.044715 * x.pow(3.0)) * kSlope).tanh();
                 return Results{0.5 * x * (1.0 + t), t};
               }),
               Function([](const at::Tensor& x) {  // of sizes that differ
                 const at::Tensor y = x.unsqueeze(0);
                 return Results{0.5 * x * (1.0 + (y / std::sqrt(2.0)).erf())};
               }));
  TracedGraph graph = traced(function);
  const auto before = calls(graph);
  make_gelu_calls(graph.graph, graph.constants);
  CHECK(calls(graph) == before);
}

}  // namespace shardline::gelu_calls_test
