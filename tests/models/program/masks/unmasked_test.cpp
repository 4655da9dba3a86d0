#include "models/program/masks/unmasked.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "models/program/operators.h"
#include "models/program/program_inputs.h"
#include "tests/models/golden.h"
#include "tests/models/program/pairs_program.h"
#include "tests/models/program/program_run.h"

#include "tests/catch.h"

namespace shardline::unmasked_test {
namespace {

int64_t masked_attentions(const Program& program) {
  return std::ranges::count_if(program.graph().nodes, [](const GraphNode& node) {
    return node.name == kAttention && node.arguments[place_of_argument(node, "attn_mask")].value >= 0;
  });
}

// The program with its window in a buffer, which has this value at first and from which each step subtracts 6.
std::shared_ptr<const Program> narrowing(int64_t window) {
  Pt2Archive archive = read_pt2(golden("program/window.pt2"));
  Graph& graph = archive.graph;
  const int buffer = std::ssize(graph.values);
  for (const char* name : {"window", "narrower"})
    graph.values.push_back({.name = name, .dtype = at::kLong, .sizes = {}});
  graph.inputs.push_back({GraphInput::Kind::buffer, "window", buffer});
  archive.constants["window"] = at::scalar_tensor(window, at::kLong);
  for (auto& node : graph.nodes)
    if (node.text() == "aten::lt.Scalar") {
      node.overload = "Tensor";
      node.arguments[1] = {.value = buffer};
    }
  graph.nodes.insert(graph.nodes.begin(), GraphNode{.name = "aten::sub_",
                                                    .overload = "Scalar",
                                                    .arguments = {{.value = buffer}, {.constant = 6}, {.constant = 1}},
                                                    .results = {{0, -1, buffer + 1}}});
  return cut_program(std::move(archive));
}

}  // namespace

TEST_CASE("masks that hide nothing are dropped in microbatches without padding", "[program]") {
  const auto program = pairs_program::pairs();
  const auto both = with_unmasked(program, 8);
  REQUIRE(both->unmasked);
  CHECK(masked_attentions(*both) == 8);
  CHECK(masked_attentions(*both->unmasked) == 5);  // biases are trained; the masks of the encoder's states are dropped
  ProgramRun masked(program, at::kDouble), unmasked(both, at::kDouble);
  for (const auto& samples : {std::vector{1}, std::vector{0, 1, 2}}) {
    const Microbatch batch = pairs_program::batch_of(samples);
    CHECK(unmasked.train(batch).sum == Approx(masked.train(batch).sum).epsilon(1e-14));
  }
  CHECK(largest_difference(masked.gradients(), unmasked.gradients()) < 1e-12);
}

TEST_CASE("a window of attention is not dropped, however long it is", "[program]") {
  const auto program = cut_program(read_pt2(golden("program/window.pt2")));  // each token sees 8 tokens
  CHECK(!with_unmasked(program, 20)->unmasked);
  const auto shorter = with_unmasked(program, 8);
  REQUIRE(shorter->unmasked);
  CHECK(shorter->unmasked_length == 8);
  ProgramRun masked(program, at::kDouble), both(shorter, at::kDouble);
  for (const int64_t length : {8, 20}) {
    CAPTURE(length);
    const Microbatch batch = sample_batch(*program, at::arange(2 * length).remainder(12).view({2, length}), 0);
    CHECK(both.train(batch).sum == Approx(masked.train(batch).sum).epsilon(1e-14));
  }
}

TEST_CASE("a mask that hides nothing in the first step may hide something in a later one", "[program]") {
  const auto both = with_unmasked(narrowing(20), 8);  // 14 tokens, then 8, then 2
  CHECK(!both->unmasked);
  ProgramRun run(both, at::kDouble), third(narrowing(2 + 6), at::kDouble);
  const Microbatch batch = sample_batch(*both, at::arange(16).remainder(12).view({2, 8}), 0);
  const LossTerm loss = third.train(batch);
  CHECK(run.train(batch, 1, 3).sum == Approx(loss.sum).epsilon(1e-14));
  CHECK(run.train(batch, 1, 1).sum != Approx(loss.sum).epsilon(1e-6));
}

}  // namespace shardline::unmasked_test
