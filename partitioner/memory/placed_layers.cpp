#include "partitioner/memory/placed_layers.h"

namespace shardline {

namespace {

std::optional<Schedule> shorter_schedule(const Schedule& schedule, int first_backward_chunk) {
  if (schedule.first_backward_chunk == first_backward_chunk) return {};
  return without_backward_before(schedule, first_backward_chunk);
}

}  // namespace

PlacedLayers::PlacedLayers(const Workload& what, const Layout& how, const Schedule& schedule,
                           const std::vector<int>& chunk_of_layer)
    : workload(what),
      layout(how),
      shorter(shorter_schedule(schedule, first_backward_chunk(what.spec, chunk_of_layer))),
      train(shorter ? *shorter : schedule),
      layers_of_chunk(schedule.stage_of_chunk.size()) {
  for (size_t layer = 0; layer < chunk_of_layer.size(); ++layer) {
    stage_of_layer.push_back(schedule.stage_of_chunk[chunk_of_layer[layer]]);
    layers_of_chunk[chunk_of_layer[layer]].push_back(layer);
  }
}

}  // namespace shardline
