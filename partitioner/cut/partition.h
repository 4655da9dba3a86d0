// The best way to cut a chain of layers into chunks of stages.
#pragma once
#include <vector>

namespace shardline {

// Costs are of one microbatch unless they say otherwise. Vectors by layer may be empty: all zero.
struct PartitionProblem {
  std::vector<int> stage_of_chunk;  // stages 0 .. P-1, each with a chunk
  std::vector<double> seconds;      // by layer; also says how many layers there are
  std::vector<double> cut_seconds;  // by layer: what cutting after it costs each of the two stages
  std::vector<double> state_bytes;  // by layer: weights, gradients, optimizer states
  std::vector<double> kept_bytes;   // by layer: activations of one microbatch
  std::vector<double> kept_counts;  // by chunk: microbatches whose activations it keeps; empty: one each
  std::vector<double> memory_caps;  // by stage, bytes; empty: none
  double memory_weight = 0;         // 0: balanced time, 1: balanced memory
};

struct Partition {
  std::vector<int> chunk_of_layer;
  double bottleneck = 0;  // cost of the most expensive stage
  bool exact = true;      // false: several chunks a stage and so many different layers that the proof was given up
};

// Contiguous chunks of at least one layer; no stage above its cap; the most expensive stage as cheap as possible, where
// a stage costs memory_weight x its share of all bytes + (1 - memory_weight) x its share of all seconds (seconds or
// bytes themselves where the weight is 0 or 1). Among equals: with one chunk a stage, earlier stages are lighter (they
// keep more); with several, chunks are as equal as moving single layers can make them. One chunk a stage: dynamic
// programming. Several: branch and bound. Throws ConfigError where there are fewer layers than chunks, and where no
// assignment keeps the caps.
Partition partition(const PartitionProblem& problem);

}  // namespace shardline
