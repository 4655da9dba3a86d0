// Seconds of a training step: the schedule's own instruction lists, priced. With a profile of the layout
// (Machines::profile) all prices are measured ones.
//
// Replicas do the same at the same time, so one of them is simulated. What a stage does:
//   its list, with messages between stages | the reduction of gradients over the replicas, behind the backwards that
//   end early | wait for the slowest stage (the gradient norm needs all of them) | sums of tied weights | optimizer |
//   gathering of updated weights that are sharded
#pragma once
#include "partitioner/cost/layer_prices.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

struct StepEstimate {
  double seconds = 0;            // between two optimizer barriers
  double pipeline_seconds = 0;   // of it: until the last stage's last backward ended
  double reduction_seconds = 0;  // of it: reductions and gatherings that nothing hides
  double optimizer_seconds = 0;  // of it: norm and update, and clearing gradients
  double bubble_fraction = 0;    // 1 - busy / (P x seconds)
  double samples_per_second = 0, tokens_per_second = 0;
  double utilization = 0;  // of the devices' peak rate, without recomputation
  double hourly_cost = 0;  // of all nodes in use; 0 without a price
};

// chunk_of_layer: as assign_chunks gives it. Throws ConfigError for a schedule that the layout cannot have.
StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout,
                           const Schedule& schedule, const std::vector<int>& chunk_of_layer,
                           const std::vector<LayerPrice>& prices, const MeshSpans& spans);

// All of it for one layout: prices, stages with equal time, schedule.
StepEstimate estimate_step(const Workload& workload, const Machines& machines, const Layout& layout);

}  // namespace shardline
