// The calls of one rank: those of the program with sizes of the rank's parts, and where ranks meet.
#pragma once
#include <set>

#include "models/program/program_split.h"
#include "models/program/split/dimensions.h"

namespace shardline {

// Which dimension of a tensor has one of the atoms; nothing if none has.
std::optional<DividedDimension> divided_dimension(const Atoms& atoms, const Dimensions& dimensions,
                                                  const std::set<int>& divided);

// A part of the program's graph for rank `rank` of `ranks`, which divide these atoms:
//  - What a rank has as a whole enters (kEnterRanks) calls on divided tensors, once, because each rank finds a part of
//    its gradient. Of what follows from no parameter it takes its part.
//  - Products, and lookups of words, that add over a divided dimension are added over the ranks (kAddOverRanks); then a
//    bias is added.
DividedPart divide_part(const Graph& graph, const ProgramDimensions& found, const std::set<int>& divided,
                        const GraphPart& whole, int ranks, int rank);

}  // namespace shardline
