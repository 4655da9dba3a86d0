// What the dimensions of a program's values count, derived from its calls. Sizes show this only if they are
// expressions; in a program that was exported for fixed sizes, the same number may count features and tokens.
#pragma once
#include <map>
#include <vector>

#include "models/program/graph.h"
#include "models/program/graph_flow.h"

namespace shardline {

enum class Counts {
  samples,
  source,    // tokens of sources; without targets: tokens
  target,    // tokens of targets
  other,     // something that every sample has: features, heads, classes, or such things together with tokens
  repeated,  // the value is the same at each place, as after expand
  unknown    // the calls do not show it
};

// By value and dimension; empty for numbers. A dimension that is shifted, cut or padded counts the same as before.
using CountedDimensions = std::vector<std::vector<Counts>>;

// arguments: what the dimensions of the program's arguments count, by value; other inputs of the graph count neither
// samples nor tokens.
CountedDimensions counted_dimensions(const Graph& graph, const GraphFlow& flow,
                                     const std::map<int, std::vector<Counts>>& arguments);

}  // namespace shardline
