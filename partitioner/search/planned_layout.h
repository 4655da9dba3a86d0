// One layout with everything that is said about it before it runs.
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

// Cuts the model for the layout's times and memory (memory_weight: PartitionProblem), within the device's memory if
// that is possible at all. Throws ConfigError for what the schedule or the model cannot have: numbers of stages and
// chunks, T not a divisor of ranks, ...
PlannedLayout plan_layout(const Workload& workload, const Machines& machines, const Layout& layout,
                          double memory_weight = 0);

// The same in two parts, with a schedule, spans and prices that the caller has already: the chunk of each layer with
// the memory that follows, and everything about given chunks, whoever made them.
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
