#include "optim/update/sgd.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include "core/memory/caching_allocator.h"

namespace shardline {

Sgd::Sgd(std::vector<TrainedRange> ranges, const OptimizerOptions& options) : options_(options) {
  const MemoryScope scope(MemoryClass::optimizer);
  for (auto& range : ranges)
    states_.push_back({range, options_.momentum == 0 ? at::Tensor() : at::zeros_like(range.values)});
}

void Sgd::step(double learning_rate, const GradientFactor& gradient_factor) {
  const bool first = updates_++ == 0;  // in the first step, the momentum is the gradient
  for (auto& state : states_) {
    take_gradients(state.range, gradient_factor, options_.max_gradient_value);
    std::vector<at::Tensor> momentum;
    if (state.momentum.defined()) momentum.push_back(state.momentum);
    at::_fused_sgd_({state.range.values}, {state.range.gradients}, momentum,
                    state.range.decays ? options_.weight_decay : 0.0, options_.momentum, learning_rate,
                    options_.dampening, options_.nesterov, /*maximize=*/false, first);
    hand_on(state.range);
  }
}

std::vector<StatePart> Sgd::state() {
  std::vector<StatePart> parts;
  for (const auto& state : states_)
    if (state.momentum.defined()) add_state_parts(kMomentum, state.range, state.momentum, parts);
  return parts;
}

}  // namespace shardline
