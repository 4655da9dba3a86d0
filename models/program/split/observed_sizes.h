// The sizes of a program's values in one run.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "models/program/program.h"

namespace shardline {

// The nodes of all layers and of the logits, from the inputs of the graph.
GraphPart whole_part(const Program& program);

// By value; nothing for numbers and for values that no layer computes. The run is on `samples` samples of `length`
// tokens and has zeros as weights. Throws a RunError if the program does not run on these.
using ObservedSizes = std::vector<std::optional<std::vector<int64_t>>>;
ObservedSizes observed_sizes(const Program& program, int64_t samples, int64_t length);

}  // namespace shardline
