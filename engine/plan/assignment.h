// Assigns layers to chunks and stages: by the planner, by explicit settings of the config, or by a file. `plan` and
// `train` use the same function.
#pragma once
#include <vector>

#include "engine/plan/machines.h"
#include "engine/plan/resolve.h"

namespace shardline {

// Returns the chunk of each layer. Throws ConfigError if there are fewer layers than chunks, or if a manual partition
// or a partition file does not name every layer of the model once, in execution order, with at least one layer in every
// chunk.
std::vector<int> assign_layers(const Config& config, const ResolvedRun& run, const Machines& machines);

}  // namespace shardline
