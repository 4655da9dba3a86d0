#include "models/program/layers/moved_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>

#include <map>
#include <numeric>

#include "models/program/interpreter.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::moved_head_test {
namespace {

using namespace words_program;

std::optional<MovedHead> moved(const Program& program) {
  return moved_head(program, program.layers.back().part);
}

std::vector<std::string> calls(const Graph& graph, const GraphPart& part) {
  std::vector<std::string> names;
  for (const int node : part.nodes) names.push_back(graph.nodes[node].name);
  return names;
}

// Changes the calls of the words program.
std::shared_ptr<const Program> changed(const std::function<void(Graph&)>& change) {
  Pt2Archive archive = read_pt2(path());
  change(archive.graph);
  return cut_program(std::move(archive));
}

GraphNode& call_of(Graph& graph, const std::string& name) {
  return *std::find_if(graph.nodes.rbegin(), graph.nodes.rend(), [&](const GraphNode& n) { return n.name == name; });
}

}  // namespace

TEST_CASE("the product of the head moves into the loss, and views of logits have features", "[moved_head]") {
  const auto program = cut_program(read_pt2(path()));
  const auto head = moved(*program);
  REQUIRE(head);
  CHECK(program->layers.back().parameters[head->weight] == "words.weight");
  CHECK(!head->bias);
  const auto before = calls(program->graph(), program->layers.back().part), after = calls(head->graph, head->part);
  CHECK(std::ranges::count(before, "aten::linear") == 1);
  CHECK(std::ranges::count(after, "aten::linear") == 0);
  CHECK(before.size() == after.size());
}

TEST_CASE("the loss of a moved head and its gradients equal those of the graph", "[moved_head]") {
  const Pt2Archive archive = read_pt2(path());
  std::map<std::string, at::Tensor> leaves;
  GraphPart whole{.nodes = std::vector<int>(archive.graph.nodes.size())};
  std::iota(whole.nodes.begin(), whole.nodes.end(), 0);
  std::vector<c10::IValue> inputs;
  for (const auto& input : archive.graph.inputs) {
    whole.inputs.push_back(input.value);
    if (input.kind == GraphInput::Kind::parameter) {
      leaves[input.name] = archive.weights->tensor(input.name).to(at::kDouble).requires_grad_(true);
      inputs.push_back(leaves[input.name]);
    } else if (input.kind == GraphInput::Kind::user) {
      inputs.push_back(input.name == "attention_mask" ? at::ones_like(ids()) : ids());
    } else {
      const at::Tensor& constant = archive.constants.at(input.name);
      inputs.push_back(constant.is_floating_point() ? constant.to(at::kDouble) : constant);
    }
  }
  for (const auto& output : archive.graph.outputs) whole.outputs.push_back(output.value);
  const at::Tensor mean = Interpreter(archive.graph, whole, at::kDouble, at::kCPU).run(inputs, nullptr)[0].toTensor();
  backward_on_this_thread({torch::autograd::impl::gradient_edge(mean)}, {at::ones_like(mean.detach())});
  for (auto& [name, leaf] : leaves) leaf = leaf.grad();

  ProgramRun layers(cut_program(read_pt2(path())), at::kDouble);
  const Microbatch batch = causal_microbatch(ids(), ids(), at::arange(ids().size(0)));
  const double weight = ids().size(0) * (ids().size(1) - 1);
  const LossTerm loss = layers.train(batch, 1 / weight);
  CHECK(loss.weight == weight);
  CHECK(loss.sum / weight == Approx(mean.item<double>()).epsilon(1e-14));
  CHECK(largest_difference(layers.gradients(), leaves) < 1e-13);
}

TEST_CASE("a head is not moved if its logits are used in another way", "[moved_head]") {
  CHECK(!moved(*changed([](Graph& graph) {  // a view that mixes rows
    GraphNode& view = call_of(graph, "aten::view");
    GraphArgument& sizes = view.arguments[1];
    if (sizes.is_list)
      sizes.items.back().constant = int64_t{-1};
    else
      sizes.constant = c10::List<int64_t>({-1, -1});
  })));
  CHECK(!moved(*changed([](Graph& graph) { call_of(graph, "aten::linear").name = "aten::matmul"; })));
}

}  // namespace shardline::moved_head_test
