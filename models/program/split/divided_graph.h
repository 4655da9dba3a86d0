// The calls of one rank: those of the program, with the sizes of the rank's parts, and those where ranks communicate.
#pragma once
#include <set>

#include "models/program/program_split.h"
#include "models/program/split/dimensions.h"
#include "models/program/split/program_rows.h"

namespace shardline {

// Which dimension of a tensor has one of the atoms; nothing if none has.
std::optional<DividedDimension> divided_dimension(const Atoms& atoms, const Dimensions& dimensions,
                                                  const std::set<int>& divided);

struct Division {
  const ProgramDimensions& found;
  const std::set<int>& atoms;  // the atoms that are divided over the ranks
  const ProgramRows* rows;     // null: every rank has all rows
  int ranks = 1, rank = 0;
};

// Makes a part of the program's graph for one rank:
//  - A value that is whole on each rank enters calls on divided tensors (kEnterRanks), once, because each rank computes
//    a part of its gradient. If it does not depend on parameters, the rank takes only its part.
//  - Products, and word lookups, that sum over a divided dimension are summed over the ranks (kAddOverRanks); then the
//    bias is added.
//  - By rows, a rank has its own rows of borders. Calls that process each row separately, and are not divided, run on
//    the rank's rows if one of their arguments is available as rows, and sums over the ranks become rows (kAddToRows).
//    Other calls get the whole (kEnterFromRows, kGatherRows).
DividedPart divide_part(const Graph& graph, const GraphPart& whole, const Division& division);

}  // namespace shardline
