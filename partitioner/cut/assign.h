// Assigns layers to pipeline stages and chunks.
#pragma once
#include <cstddef>
#include <vector>

namespace shardline {

// Throws ConfigError if there are fewer layers than chunks.
void require_layers(size_t layers, const std::vector<int>& stage_of_chunk);

// The chunk of each layer, for stages with one or more chunks. Chunks are contiguous and have at least one layer, and
// the most expensive stage is as cheap as possible. Among equal solutions, the chunks are as equal as moving single
// layers can make them (partitioner/cut/partition.h). Throws ConfigError if there are fewer layers than chunks.
std::vector<int> assign_chunks(const std::vector<double>& layer_costs, const std::vector<int>& stage_of_chunk);

}  // namespace shardline
