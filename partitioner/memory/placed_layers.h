// A layout whose layers are assigned to chunks: the input of the memory model.
#pragma once
#include <optional>
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// Holds references to the constructor's arguments, which must outlive it.
struct PlacedLayers {
  // schedule: may still contain backward passes that frozen layers do not need.
  PlacedLayers(const Workload& what, const Layout& how, const Schedule& schedule,
               const std::vector<int>& chunk_of_layer);
  PlacedLayers(const PlacedLayers&) = delete;
  PlacedLayers& operator=(const PlacedLayers&) = delete;

  const Workload& workload;
  const Layout& layout;
  const std::optional<Schedule> shorter;  // without unneeded backward passes, if the argument has any
  const Schedule& train;
  std::vector<int> stage_of_layer;
  std::vector<std::vector<int>> layers_of_chunk;  // ascending
};

}  // namespace shardline
