// Programs that change their buffers, beside programs whose buffers have the values that they should have.
#include "models/program/buffer_states.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <cmath>

#include "models/program/pt2_writer.h"
#include "models/traced/sample_check.h"
#include "tests/models/program/program_run.h"
#include "tests/models/program/words_program.h"

#include "tests/catch.h"

namespace shardline::buffer_states_test {
namespace {

using namespace words_program;

constexpr double kShare = 0.5;

// Multiplies the buffer that the head uses by `share`, before the rest of the program.
Pt2Archive halving(const std::string& file = path(), double share = kShare) {
  Pt2Archive archive = read_pt2(file);
  Graph& graph = archive.graph;
  const auto scale = std::ranges::find(graph.inputs, std::string("scale"), &GraphInput::name);
  REQUIRE(scale != graph.inputs.end());
  GraphValue halved = graph.values[scale->value];
  halved.name = "halved";
  graph.values.push_back(halved);
  graph.nodes.insert(graph.nodes.begin(), GraphNode{.name = "aten::mul_",
                                                    .overload = "Scalar",
                                                    .arguments = {{.value = scale->value}, {.constant = share}},
                                                    .results = {{0, -1, int(graph.values.size()) - 1}}});
  return archive;
}

// The program without changes, with the buffer after so many.
std::shared_ptr<const Program> scaled(int changes) {
  Pt2Archive archive = read_pt2(path());
  at::Tensor& scale = archive.constants.at("scale");
  scale = scale.clone() * std::pow(kShare, changes);
  return cut_program(std::move(archive));
}

Microbatch batch() {
  return causal_microbatch(ids(), ids(), at::arange(ids().size(0)));
}

}  // namespace

TEST_CASE("a buffer that changes by itself is a function of the step", "[buffers]") {
  const auto program = cut_program(halving());
  REQUIRE(program->buffers);
  const at::Tensor begin = read_pt2(path()).constants.at("scale");
  for (const int64_t step : {0, 1, 2, 5, 3, 40, 1, 2}) {  // forwards and backwards
    const auto values = program->buffers->before(step);
    REQUIRE(values.size() == 1);
    CHECK(values.begin()->second.equal(begin * std::pow(kShare, std::max<int64_t>(step, 1) - 1)));
  }
  CHECK(program->archive.constants.at("scale").equal(begin));
}

TEST_CASE("a program that computes in float64 changes its buffers in float64", "[buffers]") {
  const auto program = cut_program(halving(path(), 0.3));
  const at::Tensor begin = read_pt2(path()).constants.at("scale").to(at::kDouble);
  for (const int64_t step : {1, 2, 9}) {
    const at::Tensor exact = begin * std::pow(0.3, step - 1);
    const auto values = program->buffers->before(step, at::kDouble);
    CHECK(at::allclose(values.begin()->second, exact, 1e-14, 0));
    CHECK(at::allclose(program->buffers->before(step).begin()->second.to(at::kDouble), exact, 1e-6, 0));
  }
  ProgramRun run(program, at::kDouble);
  Pt2Archive ninth = read_pt2(path());
  ninth.constants.at("scale") = (begin * std::pow(0.3, 9)).to(at::kFloat);
  ProgramRun rounded(cut_program(std::move(ninth)), at::kDouble);
  CHECK(run.train(batch(), 1, 9).sum == Approx(rounded.train(batch()).sum).epsilon(1e-6));
}

TEST_CASE("changed buffers may be replaced for later steps", "[buffers]") {
  const auto program = cut_program(halving());
  const auto begin = program->buffers->before(1);
  const auto at_step = [&](int64_t step) { return program->buffers->before(step).begin()->second; };
  const at::Tensor first = begin.begin()->second;
  auto replaced = begin;
  replaced.begin()->second = first * 64;
  program->buffers->restart(5, replaced);
  CHECK(at_step(4).equal(first / 8));
  for (const int64_t step : {5, 6, 30, 5}) CHECK(at_step(step).equal(first * 64 * std::pow(kShare, step - 5)));
  replaced.begin()->second = first * 16;
  program->buffers->restart(3, replaced);  // the best model may be that of an earlier step
  CHECK(at_step(2).equal(first / 2));
  CHECK(at_step(5).equal(first * 4));
}

TEST_CASE("all microbatches and passes of a step find the buffer that the step changes once", "[buffers]") {
  ProgramRun run(cut_program(halving()), at::kDouble);
  for (const int64_t step : {1, 3}) {
    ProgramRun wanted(scaled(int(step)), at::kDouble);
    const LossTerm loss = wanted.train(batch());
    for (int microbatch = 0; microbatch < 2; ++microbatch)
      CHECK(run.train(batch(), 1, step).sum == Approx(loss.sum).epsilon(1e-12));
  }
  ProgramRun again(cut_program(halving()), at::kDouble), wanted(scaled(3), at::kDouble);
  again.train(batch(), 1, 3);
  wanted.train(batch());
  CHECK(largest_difference(again.gradients(), wanted.gradients()) < 1e-12);
}

TEST_CASE("samples are checked with buffers that change, and ranks in different steps have different buffers",
          "[buffers]") {
  const auto program = cut_program(halving());
  check_samples(program, spec_of_program(program, 4), 4);
}

TEST_CASE("the next run begins with the buffers that were written", "[buffers]") {
  const ScratchDirectory scratch;
  const auto program = cut_program(halving());
  const auto after = program->buffers->before(5 + 1);
  write_pt2(
      program->archive, [&](const std::string& name) { return name == "scale" ? after.begin()->second : at::Tensor(); },
      scratch / "trained.pt2");
  const auto next = cut_program(halving(scratch / "trained.pt2"));
  CHECK(next->buffers->before(2).begin()->second.equal(program->buffers->before(7).begin()->second));
}

}  // namespace shardline::buffer_states_test
