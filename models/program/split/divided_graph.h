// The calls of one rank: those of the program with sizes of the rank's parts, and where ranks meet.
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
  const std::set<int>& atoms;  // that the ranks divide
  const ProgramRows* rows;     // null: every rank has all rows
  int ranks = 1, rank = 0;
};

// A part of the program's graph for one rank:
//  - What a rank has as a whole enters (kEnterRanks) calls on divided tensors, once, because each rank finds a part of
//    its gradient. Of what follows from no parameter it takes its part.
//  - Products, and lookups of words, that add over a divided dimension are added over the ranks (kAddOverRanks); then a
//    bias is added.
//  - By rows, a rank has its rows of the borders. Calls that work on each row alone, and that are not divided, work on
//    the rank's rows if one of their arguments is there as rows, and sums over the ranks become rows (kAddToRows).
//    Other calls get the whole (kEnterFromRows, kGatherRows).
DividedPart divide_part(const Graph& graph, const GraphPart& whole, const Division& division);

}  // namespace shardline
