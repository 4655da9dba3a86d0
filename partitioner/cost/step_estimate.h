// Estimates the time of a training step by simulating the schedule's instruction lists with the layers' prices. With a
// profile of the layout (Machines::profile), layers, links and updates have their measured times.
//
// Replicas do the same at the same time, so one of them is simulated. Each stage does, in this order:
//   - its list, with messages between stages;
//   - the reduction of gradients over the replicas, of which a part overlaps with the last backwards;
//   - waiting for the slowest stage, because the gradient norm needs all of them;
//   - the sums of tied weights' gradients;
//   - the update;
//   - gathering updated weights that are sharded.
#pragma once
#include "partitioner/cost/layer_prices.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

struct StepEstimate {
  double seconds = 0;            // between two optimizer steps
  double pipeline_seconds = 0;   // part of it: until the last stage's last backward has ended
  double reduction_seconds = 0;  // part of it: reductions and gathers that nothing hides
  double optimizer_seconds = 0;  // part of it: norm, update and clearing gradients
  double bubble_fraction = 0;    // 1 - busy / (P x seconds)
  double samples_per_second = 0, tokens_per_second = 0;
  double utilization = 0;  // share of the devices' peak rate, without recomputation
  double hourly_cost = 0;  // for all nodes in use; 0 without a price
};

// chunk_of_layer: as assign_chunks returns it. Throws ConfigError for a schedule that the layout cannot have.
StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout,
                           const Schedule& schedule, const std::vector<int>& chunk_of_layer,
                           const std::vector<LayerPrice>& prices, const MeshSpans& spans);

// The same with the layout's prices and schedule, and stages of equal time.
StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout);

}  // namespace shardline
