#include "partitioner/cut/assign.h"

#include <algorithm>

#include "core/error.h"
#include "partitioner/cut/partition.h"

namespace shardline {

void require_layers(size_t layers, const std::vector<int>& stage_of_chunk) {
  const size_t chunks = stage_of_chunk.size();
  if (layers >= chunks) return;
  const size_t stages = 1 + *std::max_element(stage_of_chunk.begin(), stage_of_chunk.end());
  if (chunks == stages)
    throw ConfigError(cat("/smp_options/pipeline_parallel_degree: is ", stages, ", but the model has only ", layers,
                          " layers to place (embedding, blocks and head); use at most ", layers, " stages"));
  throw ConfigError(cat("the schedule cuts the model into ", chunks, " chunks for ", stages,
                        " stages, but the model has only ", layers,
                        " layers to place (embedding, blocks and head); use fewer stages or a lower "
                        "virtual_pipeline_degree, or a schedule with one chunk a stage, such as \"interleaved\""));
}

std::vector<int> assign_chunks(const std::vector<double>& layer_costs, const std::vector<int>& stage_of_chunk) {
  require_layers(layer_costs.size(), stage_of_chunk);
  return partition({.stage_of_chunk = stage_of_chunk, .seconds = layer_costs}).chunk_of_layer;
}

}  // namespace shardline
