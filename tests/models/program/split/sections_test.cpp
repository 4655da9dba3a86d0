// Products whose sections the ranks divide, whose columns are gathered, or which choose among matrices.
#include <ATen/ops/arange.h>

#include "models/program/split/dimension_rules.h"
#include "tests/models/program/split/split_runs.h"

#include "tests/catch.h"

namespace shardline::sections_test {
namespace {

using split_runs::damaged;
using split_runs::each_node;
using split_runs::forget;
using split_runs::SplitRuns;

constexpr double kRounding = 1e-12;

}  // namespace

TEST_CASE("columns that a norm or a border needs are gathered, and channels of convolutions divided", "[split]") {
  const int ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  const SplitRuns runs("program/patches.pt2");
  const auto split = runs.splitter.split(ranks, {});
  CHECK(split->share == Approx(1));
  for (const char* name :
       {"patch.weight", "first.weight", "second.weight", "blocks.0.up.weight", "blocks.0.down.weight"})
    CHECK(split->parameters.contains(name));
  CHECK(!split->parameters.contains("norm.weight"));
  CHECK(runs.distance(split) < kRounding);
  CHECK(runs.distance(runs.splitter.split(ranks, {}, true)) < kRounding);
}

TEST_CASE("the plan names gathered columns, which stay whole if the config says so", "[split]") {
  const SplitRuns runs("program/patches.pt2");
  const auto units = runs.splitter.split(2, {})->units;
  const auto unit = [&](const std::vector<SplitUnit>& of, const std::string& name) {
    return *std::ranges::find(of, name, &SplitUnit::name);
  };
  CHECK(unit(units[1], "up").parts == "gathered columns");
  CHECK(unit(units[1], "up").count == 64);
  const auto whole = runs.splitter.split(2, {{"blocks.0.up", {false, "asked"}}});
  CHECK(!whole->parameters.contains("blocks.0.up.weight"));
  CHECK(whole->parameters.contains("blocks.0.down.weight"));
  CHECK(runs.distance(whole) < kRounding);
}

TEST_CASE("the parts of unequal sizes that a product computes are each divided", "[split]") {
  const int ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  const SplitRuns runs("program/sections.pt2");
  const auto split = runs.splitter.split(ranks, {});
  const auto sections = [&](const std::string& name) {
    std::vector<int64_t> sizes;
    const auto& of = split->parameters.at("blocks.0.parts." + name + ".fused.weight");
    for (const auto& section : of.sections) sizes.push_back(section.is_divided ? section.size() : -section.size());
    return sizes;
  };
  CHECK(sections("one") == std::vector<int64_t>{12, -8});
  CHECK(sections("picked") == std::vector<int64_t>{3, -1, -1});
  CHECK(sections("unequal") == std::vector<int64_t>{10, 5, 10});
  if (ranks == 2) CHECK(sections("sliced") == std::vector<int64_t>{12, 6, 6});
  const ModelSpec spec = spec_of_program(runs.program, SplitRuns::kLength, split);
  for (const auto& param : spec.layers[1].params)
    if (param.name == "parts.one.fused.weight") CHECK((param.partial_over_t && param.split_dim < 0));
  CHECK(runs.distance(split) < kRounding);
  CHECK(runs.distance(runs.splitter.split(ranks, {}, true)) < kRounding);
}

TEST_CASE("a buffer that steps change selects no section", "[split]") {
  Pt2Archive archive = read_pt2(golden("program/sections.pt2"));
  Graph& graph = archive.graph;
  std::vector<int> places;  // of the keys and values that are picked
  for (auto& input : graph.inputs)
    if (input.kind == GraphInput::Kind::constant && archive.constants.at(input.name).numel() == 1) {
      input.kind = GraphInput::Kind::buffer;
      places.push_back(input.value);
    }
  REQUIRE(places.size() == 2);
  for (const int place : places) {
    GraphValue next = graph.values[place];
    next.name += " next";
    graph.values.push_back(next);
    graph.nodes.insert(graph.nodes.begin(), GraphNode{.name = "aten::sub_",
                                                      .overload = "Scalar",
                                                      .arguments = {{.value = place}, {.constant = 2}, {.constant = 1}},
                                                      .results = {{0, -1, int(std::ssize(graph.values)) - 1}}});
  }
  const SplitRuns constants("program/sections.pt2"), runs(cut_program(std::move(archive)), constants.batch);
  for (const int place : places) CHECK(!picked_place(*runs.program, place, 5));
  CHECK(runs.distance(runs.splitter.split(2, {})) < kRounding);
}

TEST_CASE("errors injected into divided sections and gathered columns change the results", "[split]") {
  const SplitRuns sections("program/sections.pt2"), patches("program/patches.pt2");
  // Fault: a value that every rank has computed alike passes its gradient on from each of them.
  CHECK(sections.distance(damaged(sections, 2, [](DividedPart& part, int) { each_node(part, kLeaveRanks, forget); })) >
        1e-3);
  // Fault: every rank takes the first section.
  CHECK(sections.distance(damaged(sections, 2, [](DividedPart& part, int) {
    each_node(part, "aten::slice", [](GraphNode& node) {
      const int64_t start = node.arguments[2].constant.isInt() ? node.arguments[2].constant.toInt() : 0;
      const int64_t end = node.arguments[3].constant.isInt() ? node.arguments[3].constant.toInt() : 0;
      if (start <= 0 || end <= start || end > 100) return;
      node.arguments[2].constant = 0;
      node.arguments[3].constant = end - start;
    });
  })) > 1e-3);
  // Fault: a rank leaves out its part of a bias.
  CHECK(patches.distance(damaged(patches, 2, [](DividedPart& part, int rank) {
    each_node(part, "aten::linear", [&](GraphNode& node) {
      if (rank == 0) node.arguments[2] = {.constant = {}, .items = {}};
    });
  })) > 1e-3);
}

TEST_CASE("ranks divide the columns of experts, whether tokens are sorted or matrices are looked up", "[split]") {
  const int ranks = GENERATE(2, 3);
  CAPTURE(ranks);
  const SplitRuns runs("program/experts.pt2");
  const auto split = runs.splitter.split(ranks, {});
  for (const std::string block : {"blocks.0.", "blocks.1."}) {
    for (const char* name : {"gated", "bias", "out"}) CHECK(split->parameters.contains(block + name));
    CHECK(!split->parameters.contains(block + "router.weight"));
  }
  // For each token there are 624 multiplications, of which 48 are those of the routers.
  CHECK(split->share == Approx((624.0 - 48) / 624));
  CHECK(runs.distance(split) < kRounding);
  CHECK(runs.distance(runs.splitter.split(ranks, {}, true)) < kRounding);
}

TEST_CASE("errors injected into divided experts change the results", "[split]") {
  const SplitRuns runs("program/experts.pt2");
  // Fault: every rank takes the gates for the values.
  CHECK(runs.distance(damaged(runs, 2, [](DividedPart& part, int) {
    each_node(part, "aten::slice", [](GraphNode& node) {
      if (node.arguments[4].constant == c10::IValue(2)) node.arguments[2].constant = 0;
    });
  })) > 1e-3);
  // Fault: the ranks' parts of the experts' results are not added.
  CHECK(runs.distance(damaged(runs, 2, [](DividedPart& part, int) { each_node(part, kAddOverRanks, forget); })) > 1e-3);
}

}  // namespace shardline::sections_test
