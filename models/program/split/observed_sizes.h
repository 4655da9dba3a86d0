// The sizes of a program's values, observed in one run.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "models/program/program.h"

namespace shardline {

// The nodes of all layers and of the logits, starting from the inputs of the graph.
GraphPart whole_part(const Program& program);

struct SampleSizes {
  int64_t samples = 0, source = 0, target = 0;  // target: for programs with a target
};

// By value; nothing for numbers and for values that no layer computes. The run uses samples with these numbers of
// tokens, and zeros as weights. Throws a RunError if the program does not run on them.
using ObservedSizes = std::vector<std::optional<std::vector<int64_t>>>;
ObservedSizes observed_sizes(const Program& program, const SampleSizes& of);

}  // namespace shardline
