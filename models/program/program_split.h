// What the T ranks divide of a program, and what each of them runs. models/program/split finds it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "models/program/interpreter.h"

namespace shardline {

// Calls of a divided part besides those of the program (tensor_parallel/ops/rank_sums.h).
inline constexpr const char* kEnterRanks = "shardline::enter_ranks";
inline constexpr const char* kAddOverRanks = "shardline::add_over_ranks";

// A dimension of a tensor as [before, count, after], of which each rank has its range of `count` (split_range).
struct DividedDimension {
  int dimension = 0;
  int64_t before = 1, count = 1, after = 1;

  int64_t size() const { return before * count * after; }
  int64_t size_of(Range range) const { return before * range.length * after; }
  // The places in the whole dimension that a rank has.
  std::vector<int64_t> places(Range range) const;
  // The sizes of the whole tensor in which `count` is a dimension of its own, and which one.
  std::pair<std::vector<int64_t>, int> logical(const std::vector<int64_t>& sizes) const;
};

// A part of a program on one rank. The calls have values of their own; the inputs are the whole part's, in their order.
struct DividedPart {
  Graph graph;
  GraphPart part;
  std::map<int, DividedDimension> dropped;               // by dropout site, where it is on a divided tensor
  std::vector<std::optional<DividedDimension>> outputs;  // of those that are divided
};

struct ProgramSplit {
  int ranks = 1;
  std::map<std::string, DividedDimension> parameters;  // by name in the archive; others are whole
  std::vector<std::vector<SplitUnit>> units;           // by layer
  double share = 0;                                    // of the FLOPs of products with weights, which ranks divide
  // A part of the program's graph, or of one with the same calls where some have fewer arguments (Program::unmasked).
  std::function<DividedPart(const Graph& graph, const GraphPart& part, int rank)> divide;
};

}  // namespace shardline
