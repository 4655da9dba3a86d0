// Which parts of a program the T ranks divide, and what each rank runs. Determined by models/program/split.
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

// Calls of a divided part in addition to those of the program (tensor_parallel/ops/rank_sums.h).
inline constexpr const char* kEnterRanks = "shardline::enter_ranks";
inline constexpr const char* kAddOverRanks = "shardline::add_over_ranks";
// A value that is whole on every rank but depends on a divided tensor, to which it passes its gradient once.
inline constexpr const char* kLeaveRanks = "shardline::leave_ranks";
// A divided dimension -> the whole dimension. Further arguments: the numbers of DividedDimension, in order.
inline constexpr const char* kGatherColumns = "shardline::gather_columns";
// In these, rows are the rank's rows of tokens, [rows, ...] instead of [tokens, ...] or [1, rows, ...] instead of
// [batch, length, ...]; a second argument is the number of these leading dimensions.
inline constexpr const char* kEnterFromRows = "shardline::enter_from_rows";  // rows -> whole
inline constexpr const char* kAddToRows = "shardline::add_to_rows";          // partial sums of the whole -> rows
// Rows -> the whole, for calls that every rank makes, and back. The third argument is the number of dimensions of the
// result: a sliced tensor may have fewer, or only one row for all if it is broadcast.
inline constexpr const char* kGatherRows = "shardline::gather_rows";
inline constexpr const char* kSliceRows = "shardline::slice_rows";

// A dimension of a tensor as [before, middle, after]. Each rank has its range (split_range) of the middle, which has
// `count` parts. Alternatively, the middle consists of adjacent sections, each [before, count, after] in turn: a rank
// has its range of the parts of each, or all of a section that is not divided.
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
  // The rank's places in the whole dimension.
  std::vector<int64_t> places(int ranks, int rank) const;
  // Maps a place in the middle at which a section begins or ends to its place in the rank's part.
  int64_t own_place(int64_t place, int ranks, int rank) const;
  // Without sections: the sizes of the whole tensor with `count` as a separate dimension, and that dimension's index.
  std::pair<std::vector<int64_t>, int> logical(const std::vector<int64_t>& sizes) const;
};

// A part of a program on one rank. Its calls have their own values; the inputs are those of the whole part, in order.
struct DividedPart {
  Graph graph;
  GraphPart part;
  std::map<int, DividedDimension> dropped;               // by dropout site, if its tensor is divided
  std::set<int> dropped_rows;                            // dropout sites on rows
  std::vector<std::optional<DividedDimension>> outputs;  // for divided outputs
  std::vector<bool> inputs_are_rows, outputs_are_rows;   // [1, rows, features]
};

struct ProgramSplit {
  int ranks = 1;
  // By name in the archive; others are whole. A parameter with sections is whole on each rank, which takes its part and
  // has a part of the gradient (ParamSpec::partial_over_t).
  std::map<std::string, DividedDimension> parameters;
  std::vector<std::vector<SplitUnit>> units;  // by layer
  double share = 0;                           // the fraction of the FLOPs of products with weights that ranks divide
  bool divides_rows = false;  // between layers, each rank has a part of the rows (LayerBuild::sequence_parallel)
  // Divides a part of the program's graph, or of one with the same calls of which some have fewer arguments
  // (Program::unmasked). by_rows: values at borders, and inside the part where possible, are the rank's rows of tokens.
  std::function<DividedPart(const Graph& graph, const GraphPart& part, int rank, bool by_rows)> divide;
};

}  // namespace shardline
