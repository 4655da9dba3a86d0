// The time that one microbatch takes in one layer on one rank, in seconds.
#pragma once
#include "partitioner/cost/spans.h"
#include "partitioner/layout/layout.h"

namespace shardline {

struct LayerPrice {
  double forward = 0;
  double backward_input = 0;  // includes recomputation
  double backward_weight = 0;
  double recomputed = 0;  // part of backward_input
  // Extra time if what the layer keeps is moved to the host after its forward and back before its backward.
  double forward_moving = 0, backward_moving = 0;
  double joint_saving =
      0;  // saved if the weight gradient follows immediately: tensors in cache, messages hidden by products

  double backward() const { return backward_input + backward_weight - joint_saving; }
  double whole() const { return forward + backward(); }
  LayerPrice& operator+=(const LayerPrice& other);
};

// Prices of the workload on these machines, which must outlive the result.
Pricing pricing_for(const Workload& workload, const Machines& machines);

// The time of a layer's own ops and collectives over T, measured or computed from its work, plus the extra time to
// gather sharded weights and to move activations to the host; both overlap with the computation.
LayerPrice layer_price(const Workload& workload, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t layer);

// The time of the norm and the update for this many elements. An update on the host takes as long as the longest of
// three parts, which overlap for different ranges: copying gradients to the host, copying values back, and the update
// itself.
double update_seconds(const Workload& workload, const Layout& layout, const Pricing& pricing, double elements);

// A layer's time in a rank's step, computed from its work: `work` for its own ops and the update of its parameters,
// `collectives` over T and for its gradients, with no overlap. Used to compare ways to split a layer.
struct StepShares {
  double work = 0, collectives = 0;
  StepShares& operator+=(const StepShares& other);
};
StepShares step_shares(const Workload& workload, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t layer);

// Prices of all layers; adjacent equal layers are priced once.
std::vector<LayerPrice> layer_prices(const Workload& workload, const Machines& machines, const Layout& layout,
                                     const MeshSpans& spans);

// FLOPs of a training step without recomputation, with attention counted in full: the numerator of utilization.
double model_flops(const Workload& workload);
// As above, plus the forward passes that the layout recomputes.
double hardware_flops(const Workload& workload, Recompute::What recomputed);

}  // namespace shardline
