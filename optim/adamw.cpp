#include "optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "core/caching_allocator.h"

namespace shardline {

AdamW::AdamW(std::vector<TrainedRange> ranges, const AdamWOptions& options) : options_(options) {
  const MemoryScope scope(MemoryClass::optimizer);
  for (auto& range : ranges) states_.push_back({range, at::zeros_like(range.values), at::zeros_like(range.values)});
}

void AdamW::step(double learning_rate, double gradient_factor) {
  ++steps_;
  for (auto& state : states_) {
    if (gradient_factor != 1) state.range.gradients.mul_(gradient_factor);
    const auto step = at::full({}, static_cast<double>(steps_), state.range.values.options().dtype(at::kFloat));
    at::_fused_adamw_({state.range.values}, {state.range.gradients}, {state.first}, {state.second}, {}, {step},
                      learning_rate, options_.beta1, options_.beta2, state.range.decays ? options_.weight_decay : 0.0,
                      options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
}

}  // namespace shardline
