#include "optim/update/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "core/memory/caching_allocator.h"

namespace shardline {

Adam::Adam(std::vector<TrainedRange> ranges, const OptimizerOptions& options) : options_(options) {
  const MemoryScope scope(MemoryClass::optimizer);
  for (auto& range : ranges) states_.push_back({range, at::zeros_like(range.values), at::zeros_like(range.values)});
}

void Adam::step(double learning_rate, double gradient_factor) {
  ++steps_;
  const auto update = [&](const auto& fused, State& state, const at::Tensor& step) {
    fused({state.range.values}, {state.range.gradients}, {state.first}, {state.second}, {}, {step}, learning_rate,
          options_.beta1, options_.beta2, state.range.decays ? options_.weight_decay : 0.0, options_.epsilon,
          /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
  };
  for (auto& state : states_) {
    take_gradients(state.range, gradient_factor, options_.max_gradient_value);
    const auto step = at::full({}, steps_, state.range.values.options().dtype(at::kFloat));
    if (options_.kind == OptimizerOptions::Kind::adamw)
      update(at::_ops::_fused_adamw_::call, state, step);
    else
      update(at::_ops::_fused_adam_::call, state, step);
    hand_on(state.range);
  }
}

}  // namespace shardline
