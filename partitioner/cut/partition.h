// Finds the best way to cut a chain of layers into chunks of stages.
#pragma once
#include <vector>

namespace shardline {

// Costs are per microbatch unless stated otherwise. Vectors by layer may be empty: all zero.
struct PartitionProblem {
  std::vector<int> stage_of_chunk;  // stages 0 .. P-1, each with at least one chunk
  std::vector<double> seconds;      // by layer; its length is the number of layers
  std::vector<double> cut_seconds;  // by layer: cost of a cut after it, for each of the two stages
  std::vector<double> state_bytes;  // by layer: weights, gradients, optimizer states
  std::vector<double> kept_bytes;   // by layer: activations of one microbatch
  std::vector<double> kept_counts;  // by chunk: microbatches whose activations are kept; empty: one each
  std::vector<double> memory_caps;  // by stage, bytes; empty: no caps
  double memory_weight = 0;         // 0: balanced time, 1: balanced memory
};

struct Partition {
  std::vector<int> chunk_of_layer;
  double bottleneck = 0;  // cost of the most expensive stage
  bool exact = true;      // false: the search was cut short (several chunks per stage, many different layers)
};

// Finds contiguous chunks of at least one layer such that no stage exceeds its cap and the most expensive stage is as
// cheap as possible. A stage costs memory_weight x its share of all bytes + (1 - memory_weight) x its share of all
// seconds (seconds or bytes themselves if the weight is 0 or 1). Among equal solutions: with one chunk per stage,
// earlier stages are lighter, because they keep more; with several, chunks are as equal as moving single layers can
// make them. One chunk per stage is solved by dynamic programming, several by branch and bound. Throws ConfigError if
// there are fewer layers than chunks or if no assignment meets the caps.
Partition partition(const PartitionProblem& problem);

}  // namespace shardline
