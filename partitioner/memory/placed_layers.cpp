#include "partitioner/memory/placed_layers.h"

namespace shardline {

PlacedLayers::PlacedLayers(const Workload& what, const Layout& how, const Schedule& schedule,
                           const std::vector<int>& chunk_of_layer)
    : workload(what), layout(how), train(schedule), layers_of_chunk(schedule.stage_of_chunk.size()) {
  for (size_t layer = 0; layer < chunk_of_layer.size(); ++layer) {
    stage_of_layer.push_back(schedule.stage_of_chunk[chunk_of_layer[layer]]);
    layers_of_chunk[chunk_of_layer[layer]].push_back(layer);
  }
}

}  // namespace shardline
