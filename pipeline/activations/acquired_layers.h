// The order in which a stage's instruction list uses the values of layers.
#pragma once
#include <vector>

#include "pipeline/activations/recompute.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// groups_of_chunk: as returned by layer_groups. A recomputed group runs forward again before its backward.
std::vector<int> acquired_layers(const std::vector<Instruction>& list,
                                 const std::vector<std::vector<int>>& layers_of_chunk,
                                 const std::vector<std::vector<LayerGroup>>& groups_of_chunk);

}  // namespace shardline
