#include "models/program/split/program_splitter.h"

#include <map>

#include "core/error.h"
#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::program_splitter_test {
namespace {

using Catch::Matchers::Contains;
using split_runs::damaged;
using split_runs::each_node;
using split_runs::forget;
using split_runs::SplitRuns;

constexpr double kRounding = 1e-12;

std::map<std::string, SplitUnit> units_of(const SplitRuns& runs, const ProgramSplit& split) {
  std::map<std::string, SplitUnit> units;
  for (size_t layer = 0; layer < split.units.size(); ++layer)
    for (const auto& unit : split.units[layer]) units[runs.whole.layers[layer].full_name(unit)] = unit;
  return units;
}

}  // namespace

TEST_CASE("ranks that divide a program give the results of a single rank", "[split]") {
  const std::string file = GENERATE(std::string("program/heads.pt2"), std::string("program/words.pt2"));
  const int ranks = GENERATE(2, 3, 4);
  CAPTURE(file, ranks);
  const SplitRuns runs(file);
  for (const bool divides_rows : {false, true}) {
    CHECK(runs.distance(runs.splitter.split(ranks, {}, divides_rows)) < kRounding);
    CHECK(runs.distance(runs.splitter.split(ranks, {}, divides_rows), 0.1) < kRounding);
  }
}

TEST_CASE("an embedding table that another call divides stays whole", "[split]") {
  const SplitRuns runs("program/halves.pt2");
  const auto split = runs.splitter.split(2, {});
  CHECK(runs.distance(split) < kRounding);
  CHECK(!split->parameters.contains("words.weight"));
}

TEST_CASE("units are named by the modules whose parameters are divided together", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto split = runs.splitter.split(2, {});
  const auto units = units_of(runs, *split);
  CHECK(units.at("embedding.words").parts == kVocabularyWords);
  CHECK(units.at("head.head").count == 11);
  CHECK(units.at("blocks.0.fused").parts == kAttentionHeads);
  CHECK(units.at("blocks.0.fused").count == 3);
  CHECK(units.at("blocks.0.grouped").count == 2);
  CHECK(units.at("blocks.0.gated").parts == "columns");
  CHECK(units.at("blocks.0.gated").count == 7);
  CHECK(!units.at("blocks.0.gated.mixed").split);
  CHECK_THAT(units.at("blocks.0.gated.mixed").why, Contains("softmax in blocks.0.gated needs all of them"));
  CHECK(split->parameters.at("blocks.0.fused.weight").logical({8, 18}) ==
        std::pair(std::vector<int64_t>{8, 3, 3, 2}, 2));
  CHECK(!split->parameters.contains("blocks.0.grouped.q_norm.weight"));
  // For each token there are 832 multiplications, of which 64 are those of `mixed`.
  const double all = 8 * 18 + 6 * 8 + 8 * 24 + 16 * 8 + 64 + 3 * 56 + 8 * 11;
  CHECK(split->share == Approx((all - 64) / all));
}

TEST_CASE("key heads stay whole if there are fewer of them than ranks", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto split = runs.splitter.split(3, {});
  CHECK(split->parameters.at("blocks.0.grouped.q.weight").count == 4);
  CHECK(!split->parameters.contains("blocks.0.grouped.k.weight"));
  CHECK_THAT(units_of(runs, *split).at("blocks.0.grouped.k").why, Contains("there are 2 for 3 ranks"));
}

TEST_CASE("units stay whole if the config says so", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto split =
      runs.splitter.split(2, {{"blocks.0.gated", {false, "asked"}}, {"blocks.0.fused", {true, "asked"}}});
  CHECK(!split->parameters.contains("blocks.0.gated.up.weight"));
  CHECK(split->parameters.contains("blocks.0.fused.weight"));
  CHECK(units_of(runs, *split).at("blocks.0.gated").why == "asked");
  CHECK(runs.distance(split) < kRounding);
  CHECK_THROWS_WITH(runs.splitter.split(2, {{"blocks.0.gated.mixed", {true, "asked"}}}),
                    Contains("blocks.0.gated.mixed cannot be split over 2 ranks") && Contains("softmax"));
}

TEST_CASE("errors injected into a division change the results", "[split]") {
  const SplitRuns runs("program/heads.pt2");
  const auto distance = [&](const std::function<void(DividedPart&, int rank)>& damage) {
    return runs.distance(damaged(runs, 2, damage));
  };
  CHECK(distance([](DividedPart&, int) {}) < kRounding);
  // Fault: gradients are not added.
  CHECK(distance([&](DividedPart& part, int) { each_node(part, kEnterRanks, forget); }) > 1e-3);
  // Fault: results are not added.
  CHECK(distance([&](DividedPart& part, int) { each_node(part, kAddOverRanks, forget); }) > 1e-3);
  // Fault: each rank adds the bias before the ranks' sums are added.
  CHECK(distance([&](DividedPart& part, int) {
          auto& nodes = part.graph.nodes;
          for (size_t i = 0; i + 1 < nodes.size(); ++i)
            if (nodes[i].name == kAddOverRanks && nodes[i + 1].name == "aten::add" &&
                nodes[i + 1].arguments[0].value == nodes[i].results[0].value) {
              std::swap(nodes[i].results[0], nodes[i + 1].results[0]);
              std::swap(nodes[i].arguments[0], nodes[i + 1].arguments[0]);
              std::swap(nodes[i], nodes[i + 1]);
            }
        }) > 1e-3);
  // Fault: every rank takes the first part of a bias by head.
  CHECK(distance([&](DividedPart& part, int) {
          each_node(part, "aten::slice", [](GraphNode& node) {
            if (node.arguments[0].value < 0 || node.arguments[2].constant != c10::IValue(2)) return;
            node.arguments[2].constant = 0;
            node.arguments[3].constant = 1;
          });
        }) > 1e-6);
  // Fault: every rank drops what the first one drops.
  CHECK(distance([](DividedPart& part, int) { part.dropped.clear(); }) > 1e-3);
  // Fault: words of other ranks are looked up as this rank's first word.
  CHECK(distance([&](DividedPart& part, int) {
          each_node(part, "aten::masked_fill", [&](GraphNode& node) {
            if (part.graph.values[node.results[0].value].name.ends_with(" own")) forget(node);
          });
        }) > 1e-3);
}

}  // namespace shardline::program_splitter_test
