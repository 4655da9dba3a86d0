#include "optim/update/added_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "core/error.h"
#include "core/memory/caching_allocator.h"

namespace shardline {
namespace {

std::map<std::string, ElementRule>& rules() {
  static std::map<std::string, ElementRule> all;
  return all;
}

}  // namespace

void add_optimizer(const std::string& name, ElementRule rule) {
  if (!rules().emplace(name, std::move(rule)).second)
    throw ConfigError(cat("there is already an optimizer \"", name, "\"; give the new one another name"));
}

const std::map<std::string, ElementRule>& added_optimizers() {
  return rules();
}

const ElementRule& rule_of(const OptimizerOptions& options) {
  const auto found = rules().find(options.added);
  SL_ASSERT(found != rules().end(), "no optimizer ", options.added);
  return found->second;
}

AddedOptimizer::AddedOptimizer(std::vector<TrainedRange> ranges, const OptimizerOptions& options)
    : rule_(rule_of(options)), options_(options) {
  const MemoryScope scope(MemoryClass::optimizer);
  for (auto& range : ranges) {
    State state{range, {}};
    for (size_t i = 0; i < rule_.states.size(); ++i) state.tensors.push_back(at::zeros_like(range.values));
    states_.push_back(std::move(state));
  }
}

void AddedOptimizer::step(double learning_rate, const GradientFactor& gradient_factor) {
  const at::NoGradGuard no_grad;
  ++updates_;
  for (auto& state : states_) {
    take_gradients(state.range, gradient_factor, options_.max_gradient_value);
    rule_.update({.values = state.range.values,
                  .gradients = state.range.gradients,
                  .states = state.tensors,
                  .learning_rate = learning_rate,
                  .weight_decay = state.range.decays ? options_.weight_decay : 0.0,
                  .step = updates_,
                  .options = options_});
    hand_on(state.range);
  }
}

std::vector<StatePart> AddedOptimizer::state() {
  std::vector<StatePart> parts;
  for (const auto& state : states_)
    for (size_t i = 0; i < state.tensors.size(); ++i)
      add_state_parts(rule_.states[i].c_str(), state.range, state.tensors[i], parts);
  return parts;
}

}  // namespace shardline
