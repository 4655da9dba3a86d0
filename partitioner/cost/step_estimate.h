// Estimates the time of a training step by simulating the schedule's instruction lists with the prices of the layers.
// If a profile applies to the layout (Machines::profile), the measured times of layers, links and updates are used.
//
// Replicas do the same work at the same time, so one of them is simulated. Each stage performs, in this order:
//   - its list, with messages between stages;
//   - the reduction of gradients over the replicas, which partly overlaps with the last backward passes;
//   - waiting for the slowest stage, because the gradient norm needs all of them;
//   - adding up the gradients of tied weights;
//   - the update;
//   - gathering updated sharded weights.
#pragma once
#include "partitioner/cost/layer_prices.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

struct StepEstimate {
  double seconds = 0;            // between two optimizer steps
  double pipeline_seconds = 0;   // part of it: up to the end of the last stage's last backward
  double reduction_seconds = 0;  // part of it: reductions and gathers that nothing hides
  double optimizer_seconds = 0;  // part of it: norm, update and clearing gradients
  double bubble_fraction = 0;    // 1 - busy / (P x seconds)
  double samples_per_second = 0, tokens_per_second = 0;
  double utilization = 0;  // fraction of the devices' peak rate, without recomputation
  double hourly_cost = 0;  // for all nodes in use; 0 without a price
};

// chunk_of_layer: as returned by assign_chunks. Throws ConfigError if the schedule is not possible in the layout.
StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout,
                           const Schedule& schedule, const std::vector<int>& chunk_of_layer,
                           const std::vector<LayerPrice>& prices, const MeshSpans& spans);

// As above, with the layout's own prices and schedule, and stages that take equal time.
StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout);

}  // namespace shardline
