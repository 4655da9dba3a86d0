// One layout with its cut, step time and memory.
#pragma once
#include "partitioner/cost/step_estimate.h"
#include "partitioner/memory/memory_fit.h"

namespace shardline {

struct PlannedLayout {
  Layout layout;
  std::vector<int> stage_of_chunk, chunk_of_layer;
  StepEstimate step;
  std::vector<MemoryBytes> memory;  // by stage
  MemoryFit fit;
};

// Cuts the model for the layout's times and memory (memory_weight: see PartitionProblem), within the device's memory if
// possible. Throws ConfigError if the schedule or the model does not allow the layout.
PlannedLayout plan_layout(const Workload& workload, const Machines& machines, const Layout& layout,
                          double memory_weight = 0);

// The same work in two parts, for a caller that already has a schedule, spans and prices: cut_model assigns layers to
// chunks and computes the resulting memory, describe_layout describes a layout with any given cut.
struct Cut {
  std::vector<int> chunk_of_layer;
  std::vector<MemoryBytes> memory;  // by stage
};
Cut cut_model(const Workload& workload, const Machines& machines, const Layout& layout, const Schedule& schedule,
              const MeshSpans& spans, const std::vector<LayerPrice>& prices, double memory_weight = 0);
PlannedLayout describe_layout(const Workload& workload, const Machines& machines, const Layout& layout,
                              const Schedule& schedule, const MeshSpans& spans, const std::vector<LayerPrice>& prices,
                              const Cut& cut);

}  // namespace shardline
