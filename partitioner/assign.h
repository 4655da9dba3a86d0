// Which layers stand on which pipeline stage and in which chunk.
#pragma once
#include <vector>

namespace shardline {

// Contiguous, at least one layer a stage, the most expensive stage as cheap as possible; among equals the one whose
// earlier stages are lighter (they keep more microbatches). Returns the stage of each layer. Exact, by dynamic
// programming. Throws ConfigError when there are fewer layers than stages.
std::vector<int> assign_stages(const std::vector<double>& layer_costs, int stages);

// The chunk of each layer, where stages may have several chunks: contiguous, at least one layer a chunk. Begins with
// equal chunks, as assign_stages makes them, and then moves borders by a layer as long as that makes the most expensive
// stage cheaper, or the chunks more equal at its cost. Throws ConfigError when there are fewer layers than chunks.
std::vector<int> assign_chunks(const std::vector<double>& layer_costs, const std::vector<int>& stage_of_chunk);

}  // namespace shardline
