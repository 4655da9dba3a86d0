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
  // More, where what the layer keeps leaves for the host behind its forward and comes back before its backward.
  double forward_moving = 0, backward_moving = 0;
  double joint_saving = 0;  // less, where the weight gradient follows at once: each in cache, messages behind products

  double backward() const { return backward_input + backward_weight - joint_saving; }
  double whole() const { return forward + backward(); }
  LayerPrice& operator+=(const LayerPrice& other);
};

// What the own ops and collectives over T of a layer of the model take, as measured or as told from its work, and what
// gathering sharded weights and moving to the host take beyond that: both travel beside the computation.
LayerPrice layer_price(const Job& job, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       size_t layer);

// Norm and update of so many elements. On the host an update takes as long as the longest of three that go on at once,
// for different ranges: gradients on their way down, values on their way up, and the update itself.
double update_seconds(const Job& job, const Pricing& pricing, double elements);

// What one layer takes a rank of a step, told from what it states: by itself, with the update of its parameters, and in
// communication over T and of its gradients, none of it hidden. For comparing ways to split it.
struct StepShares {
  double work = 0, collectives = 0;
  StepShares& operator+=(const StepShares& other);
};
StepShares step_shares(const Job& job, const Layout& layout, const Pricing& pricing, const MeshSpans& spans,
                       const LayerSpec& layer);

// Of all layers; equal neighbours are priced once.
std::vector<LayerPrice> layer_prices(const Job& job, const Layout& layout, const MeshSpans& spans);

// FLOPs of a training step without recomputation, attention counted in full: what utilization is measured by.
double model_flops(const Job& job);
// And with the forwards that the layout runs again.
double hardware_flops(const Job& job, Recomputed recomputed);

}  // namespace shardline
