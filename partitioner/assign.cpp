#include "partitioner/assign.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "partitioner/partition.h"

namespace shardline {

std::vector<int> assign_stages(const std::vector<double>& layer_costs, int stages) {
  if (layer_costs.size() < static_cast<size_t>(stages))
    throw ConfigError(cat("pipeline_parallel_degree is ", stages, ", but the model has only ", layer_costs.size(),
                          " layers to place (embedding, blocks and head); use at most ", layer_costs.size(),
                          " stages"));
  std::vector<int> stage_of_chunk(static_cast<size_t>(stages));
  std::iota(stage_of_chunk.begin(), stage_of_chunk.end(), 0);
  return partition({.stage_of_chunk = stage_of_chunk, .seconds = layer_costs}).chunk_of_layer;
}

std::vector<int> assign_chunks(const std::vector<double>& layer_costs, const std::vector<int>& stage_of_chunk) {
  const size_t chunks = stage_of_chunk.size();
  const auto stages = static_cast<size_t>(*std::max_element(stage_of_chunk.begin(), stage_of_chunk.end())) + 1;
  if (chunks == stages) return assign_stages(layer_costs, static_cast<int>(stages));
  if (layer_costs.size() < chunks)
    throw ConfigError(cat("the schedule cuts the model into ", chunks, " chunks for ", stages,
                          " stages, but the model has only ", layer_costs.size(),
                          " layers to place (embedding, blocks and head); use fewer stages or a lower "
                          "virtual_pipeline_degree, or a schedule with one chunk a stage, such as \"interleaved\""));
  return partition({.stage_of_chunk = stage_of_chunk, .seconds = layer_costs}).chunk_of_layer;
}

}  // namespace shardline
