// Programs in half precision on T ranks, compared with one rank in float64 on the same numbers.
#include <cmath>

#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::split_half_test {
namespace {

using split_runs::damaged;
using split_runs::each_node;
using split_runs::forget;
using split_runs::SplitRuns;

// The largest distance of the loss and the gradients from float64, in roundings of the type, relative to the length of
// a gradient, or to a tenth of that of the longest one. split: null: one rank.
double roundings(const SplitRuns& runs, const std::shared_ptr<const ProgramSplit>& split, at::ScalarType type) {
  const ModelSpec spec = split ? spec_of_program(runs.program, SplitRuns::kLength, split) : runs.whole;
  const LayersOutcome exact = runs.run(runs.whole, {.ranks = 1, .rounded_to = type}),
                      got = runs.run(spec, {.ranks = split ? split->ranks : 1,
                                            .sequence_parallel = split && split->divides_rows,
                                            .type = type});
  CHECK(got.types_hold);
  CHECK(got.ranks_agree);
  double longest = 0, worst = std::abs(got.loss.sum / exact.loss.sum - 1);
  for (const auto& gradient : exact.gradients) longest = std::max(longest, gradient.norm().item<double>());
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    const at::Tensor& gradient = exact.gradients[i];
    const double apart = (got.gradients[i].view(gradient.sizes()) - gradient).norm().item<double>();
    worst = std::max(worst, apart / std::max(gradient.norm().item<double>(), 0.1 * longest));
  }
  return worst / (type == at::kBFloat16 ? std::ldexp(1, -8) : std::ldexp(1, -11));
}

// The ranks' distance from float64 relative to that of one rank in half precision.
double distance_of_ranks(const SplitRuns& runs, const std::shared_ptr<const ProgramSplit>& split, at::ScalarType type) {
  return roundings(runs, split, type) / roundings(runs, nullptr, type);
}

// Partial sums are rounded on each rank.
constexpr double kMostOfRanks = 4;

}  // namespace

TEST_CASE("ranks that divide a program in half precision are as near to float64 as one rank", "[split]") {
  const std::string file = GENERATE(std::string("program/heads.pt2"), std::string("program/words.pt2"));
  const int ranks = GENERATE(2, 3);
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  CAPTURE(file, ranks, type);
  const SplitRuns runs(file);
  for (const bool divides_rows : {false, true})
    CHECK(distance_of_ranks(runs, runs.splitter.split(ranks, {}, divides_rows), type) < kMostOfRanks);
}

TEST_CASE("terms that ranks leave out or count twice are larger than the rounding errors of half precision",
          "[split]") {
  const auto type = GENERATE(at::kBFloat16, at::kHalf);
  CAPTURE(type);
  const SplitRuns runs("program/heads.pt2");
  // Fault: a part of a gradient, or of a result, is left out.
  for (const char* name : {kEnterRanks, kAddOverRanks})
    CHECK(distance_of_ranks(runs, damaged(runs, 2, [&](DividedPart& part, int) { each_node(part, name, forget); }),
                            type) > kMostOfRanks);
  // Fault: each rank adds the bias.
  const auto added_twice = [](DividedPart& part, int) {
    each_node(part, "aten::type_as", [](GraphNode& node) {
      node.name = kAddOverRanks;
      node.is_operator = false;
      node.arguments.resize(1);
    });
  };
  CHECK(distance_of_ranks(runs, damaged(runs, 2, added_twice), type) > kMostOfRanks);
}

}  // namespace shardline::split_half_test
