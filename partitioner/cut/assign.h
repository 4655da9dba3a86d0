// Assigns layers to pipeline stages and chunks.
#pragma once
#include <cstddef>
#include <vector>

namespace shardline {

// Throws ConfigError when there are fewer layers than chunks.
void require_layers(size_t layers, const std::vector<int>& stage_of_chunk);

// The chunk of each layer, where stages may have several chunks: contiguous, at least one layer a chunk, the most
// expensive stage as cheap as possible; among equals the chunks as equal as moving single layers makes them
// (partitioner/cut/partition.h). Throws ConfigError when there are fewer layers than chunks.
std::vector<int> assign_chunks(const std::vector<double>& layer_costs, const std::vector<int>& stage_of_chunk);

}  // namespace shardline
