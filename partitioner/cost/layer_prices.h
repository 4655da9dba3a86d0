// Seconds of one microbatch through one layer on one rank.
#pragma once
#include "partitioner/cost/spans.h"
#include "partitioner/layout/layout.h"

namespace shardline {

struct LayerPrice {
  double forward = 0;
  double backward_input = 0;  // with what is recomputed before it
  double backward_weight = 0;
  double recomputed = 0;  // of backward_input
  // Additional time if what the layer keeps is moved to the host after its forward and back before its backward.
  double forward_moving = 0, backward_moving = 0;
  double joint_saving =
      0;  // less, if the weight gradient follows immediately: tensors in cache, messages hidden by products

  double backward() const { return backward_input + backward_weight - joint_saving; }
  double whole() const { return forward + backward(); }
  LayerPrice& operator+=(const LayerPrice& other);
};

// The workload's prices on the machines, which must outlive it.
Pricing pricing_for(const Workload& workload, const Machines& machines);

// Time of a layer's own ops and collectives over T, as measured or computed from its work, and the additional time of
// gathering sharded weights and moving to the host; both overlap with the computation.
LayerPrice layer_price(const Workload& workload, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t layer);

// Norm and update of so many elements. On the host an update takes as long as the longest of three that run at the same
// time, for different ranges: gradients on their way down, values on their way up, and the update itself.
double update_seconds(const Workload& workload, const Layout& layout, const Pricing& pricing, double elements);

// Time of one layer in a rank's step, computed from what it states: by itself, with the update of its parameters, and
// in communication over T and of its gradients, none of it hidden. For comparing ways to split it.
struct StepShares {
  double work = 0, collectives = 0;
  StepShares& operator+=(const StepShares& other);
};
StepShares step_shares(const Workload& workload, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t layer);

// Of all layers; equal neighbours are priced once.
std::vector<LayerPrice> layer_prices(const Workload& workload, const Machines& machines, const Layout& layout,
                                     const MeshSpans& spans);

// FLOPs of a training step without recomputation, attention counted in full: what utilization is measured by.
double model_flops(const Workload& workload);
// And with the forwards that the layout runs again.
double hardware_flops(const Workload& workload, Recompute::What recomputed);

}  // namespace shardline
