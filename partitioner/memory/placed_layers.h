// A layout whose layers have their chunks: what the memory of its ranks follows from.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// What it is made from must outlive it.
struct PlacedLayers {
  PlacedLayers(const Workload& what, const Layout& how, const Schedule& schedule,
               const std::vector<int>& chunk_of_layer);

  const Workload& workload;
  const Layout& layout;
  const Schedule& train;
  Mesh mesh;
  std::vector<int> stage_of_layer;
  std::vector<std::vector<int>> layers_of_chunk;  // ascending
};

}  // namespace shardline
