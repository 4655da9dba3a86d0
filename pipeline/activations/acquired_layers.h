// The order in which a stage's list of instructions uses the values of layers.
#pragma once
#include <vector>

#include "pipeline/activations/recompute.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// groups_of_chunk: as layer_groups returns them. A recomputed group runs forward once more before its backward.
std::vector<int> acquired_layers(const std::vector<Instruction>& list,
                                 const std::vector<std::vector<int>>& layers_of_chunk,
                                 const std::vector<std::vector<LayerGroup>>& groups_of_chunk);

}  // namespace shardline
