#include "optim/update/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "core/memory/caching_allocator.h"
#include "optim/update/cuda/device_updates.h"

namespace shardline {

Adam::Adam(std::vector<TrainedRange> ranges, const OptimizerOptions& options) : options_(options) {
  const MemoryScope scope(MemoryClass::optimizer);
  for (auto& range : ranges) states_.push_back({range, at::zeros_like(range.values), at::zeros_like(range.values)});
}

void Adam::step(double learning_rate, const GradientFactor& gradient_factor) {
  ++updates_;
  if (update_at_once(learning_rate, gradient_factor)) return;
  const auto update = [&](const auto& fused, State& state, const at::Tensor& step) {
    fused({state.range.values}, {state.range.gradients}, {state.first}, {state.second}, {}, {step}, learning_rate,
          options_.beta1, options_.beta2, state.range.decays ? options_.weight_decay : 0.0, options_.epsilon,
          /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
  };
  for (auto& state : states_) {
    take_gradients(state.range, gradient_factor, options_.max_gradient_value);
    const auto step = at::full({}, updates_, state.range.values.options().dtype(at::kFloat));
    if (options_.kind == OptimizerOptions::Kind::adamw)
      update(at::_ops::_fused_adamw_::call, state, step);
    else
      update(at::_ops::_fused_adam_::call, state, step);
    hand_on(state.range);
  }
}

std::vector<StatePart> Adam::state() {
  std::vector<StatePart> parts;
  for (const auto& state : states_) {
    add_state_parts(kFirstMoment, state.range, state.first, parts);
    add_state_parts(kSecondMoment, state.range, state.second, parts);
  }
  return parts;
}

// Updates all ranges in a few launches if the device has a kernel: for small ranges, a launch takes longer than the
// update. Returns false if it has none.
bool Adam::update_at_once(double learning_rate, const GradientFactor& gradient_factor) {
  if (states_.empty()) return true;
  const at::Tensor& values = states_.front().range.values;
  const DeviceUpdates* kernels = updates_for(values.device(), values.scalar_type());
  if (kernels == nullptr) return false;
  std::vector<AdamTensors> ranges;
  for (const auto& state : states_) {
    if (state.range.await_gradients) state.range.await_gradients();
    ranges.push_back({state.range.values, state.range.gradients, state.first, state.second, state.range.rounded,
                      state.range.decays});
  }
  kernels->adam_step(ranges,
                     {.learning_rate = learning_rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .weight_decay = options_.weight_decay,
                      .step = updates_,
                      .gradient_factor = gradient_factor.known,
                      .max_gradient_value = options_.max_gradient_value,
                      .decoupled = options_.kind == OptimizerOptions::Kind::adamw},
                     gradient_factor.on_device);
  for (const auto& state : states_) {
    if (state.range.rounded_is_written) state.range.rounded_is_written();
    hand_on(state.range);
  }
  return true;
}

}  // namespace shardline
