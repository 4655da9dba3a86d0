// The sizes of a program's values in one run.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "models/program/program.h"

namespace shardline {

// The nodes of all layers and of the logits, from the inputs of the graph.
GraphPart whole_part(const Program& program);

struct SampleSizes {
  int64_t samples = 0, source = 0, target = 0;  // target: of programs with a target
};

// By value; nothing for numbers and for values that no layer computes. The run is on samples of these numbers of tokens
// and has zeros as weights. Throws a RunError if the program does not run on these.
using ObservedSizes = std::vector<std::optional<std::vector<int64_t>>>;
ObservedSizes observed_sizes(const Program& program, const SampleSizes& of);

}  // namespace shardline
