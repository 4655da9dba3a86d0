// Which layers stand on which pipeline stage.
#pragma once
#include <vector>

namespace shardline {

// Contiguous, at least one layer a stage, the most expensive stage as cheap as possible; among equals the one whose
// earlier stages are lighter (they keep more microbatches). Returns the stage of each layer. Exact, by dynamic
// programming. Throws ConfigError when there are fewer layers than stages.
std::vector<int> assign_stages(const std::vector<double>& layer_costs, int stages);

}  // namespace shardline
