// What the T ranks divide of a program, and what each of them runs. models/program/split finds it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "models/program/interpreter.h"

namespace shardline {

// Calls of a divided part besides those of the program (tensor_parallel/ops/rank_sums.h).
inline constexpr const char* kEnterRanks = "shardline::enter_ranks";
inline constexpr const char* kAddOverRanks = "shardline::add_over_ranks";
// What is whole on every rank but follows from a divided tensor, whose gradient it passes on once.
inline constexpr const char* kLeaveRanks = "shardline::leave_ranks";
// A dimension of which a rank has its part -> the whole. Further arguments: DividedDimension's numbers, in its order.
inline constexpr const char* kGatherColumns = "shardline::gather_columns";
// Rows are those of tokens of which a rank has its part, [rows, ...] instead of [tokens, ...] or [1, rows, ...] instead
// of [batch, length, ...]; a second argument is the number of these first dimensions.
inline constexpr const char* kEnterFromRows = "shardline::enter_from_rows";  // rows -> whole
inline constexpr const char* kAddToRows = "shardline::add_to_rows";          // partial sums of the whole -> rows
// Rows -> the whole, for calls that every rank makes, and back. The third argument is the number of dimensions of the
// result: what is sliced may have fewer, or only one row for all, as what is broadcast has.
inline constexpr const char* kGatherRows = "shardline::gather_rows";
inline constexpr const char* kSliceRows = "shardline::slice_rows";

// A dimension of a tensor as [before, middle, after]. Of the middle, which has `count` parts, each rank has its range
// (split_range). Or it consists of sections that are side by side, each [before, count, after] in turn: a rank has its
// range of the parts of each, or all of a section that is not divided.
struct DividedDimension {
  struct Section {
    int64_t before = 1, count = 1, after = 1;
    bool is_divided = false;

    int64_t size() const { return before * count * after; }
    int64_t own_size(int ranks, int rank) const { return before * own(ranks, rank).length * after; }
    Range own(int ranks, int rank) const { return is_divided ? split_range(count, ranks, rank) : Range{0, count}; }
  };

  int dimension = 0;
  int64_t before = 1, count = 1, after = 1;
  std::vector<Section> sections;  // empty: the middle is `count`

  int64_t middle() const;
  int64_t own_middle(int ranks, int rank) const;
  int64_t size() const { return before * middle() * after; }
  int64_t own_size(int ranks, int rank) const { return before * own_middle(ranks, rank) * after; }
  // The places in the whole dimension that a rank has.
  std::vector<int64_t> places(int ranks, int rank) const;
  // Of a place of the middle at which a section begins or ends: where that is in the rank's part.
  int64_t own_place(int64_t place, int ranks, int rank) const;
  // Without sections: the sizes of the whole tensor in which `count` is a dimension of its own, and which one.
  std::pair<std::vector<int64_t>, int> logical(const std::vector<int64_t>& sizes) const;
};

// A part of a program on one rank. The calls have values of their own; the inputs are the whole part's, in their order.
struct DividedPart {
  Graph graph;
  GraphPart part;
  std::map<int, DividedDimension> dropped;               // by dropout site, where it is on a divided tensor
  std::set<int> dropped_rows;                            // dropout sites on rows
  std::vector<std::optional<DividedDimension>> outputs;  // of those that are divided
  std::vector<bool> inputs_are_rows, outputs_are_rows;   // [1, rows, features]
};

struct ProgramSplit {
  int ranks = 1;
  // By name in the archive; others are whole. One with sections is on each rank as a whole, which takes its part from
  // it and has a part of its gradient (ParamSpec::partial_over_t).
  std::map<std::string, DividedDimension> parameters;
  std::vector<std::vector<SplitUnit>> units;  // by layer
  double share = 0;                           // of the FLOPs of products with weights, which ranks divide
  bool divides_rows = false;  // between layers, each rank has a part of the rows (LayerBuild::sequence_parallel)
  // A part of the program's graph, or of one with the same calls where some have fewer arguments (Program::unmasked).
  // by_rows: values at borders, and inside of the part where that can be, are the rank's rows of tokens.
  std::function<DividedPart(const Graph& graph, const GraphPart& part, int rank, bool by_rows)> divide;
};

}  // namespace shardline
