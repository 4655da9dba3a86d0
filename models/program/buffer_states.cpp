#include "models/program/buffer_states.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace shardline {

namespace {

constexpr size_t kMostKnown = 8;  // ranks that are threads may be in different steps

}  // namespace

BufferStates::BufferStates(Graph graph, const GraphPart& changes, Values begin)
    : graph_(std::move(graph)), changes_(changes) {
  begins_.emplace(1, std::move(begin));
}

BufferStates::Values BufferStates::before(int64_t step, at::ScalarType floating) {
  const std::lock_guard lock(mutex_);
  auto& [interpreter, states] = states_of(floating);
  step = std::max<int64_t>(step, 1);
  auto known = std::prev(states.upper_bound(step));
  while (known->first < step) {
    known = states.insert_or_assign(known->first + 1, after(interpreter, known->second)).first;
    if (states.size() <= kMostKnown + begins_.size()) continue;
    states.erase(std::ranges::find_if(
        states, [&](const auto& one) { return one.first != known->first && !begins_.contains(one.first); }));
  }
  Values changed;
  for (const int value : changes_.outputs) changed[value] = known->second.at(value);
  return changed;
}

void BufferStates::restart(int64_t step, const Values& changed) {
  const std::lock_guard lock(mutex_);
  step = std::max<int64_t>(step, 1);
  Values values = begins_.at(1);
  for (const int value : changes_.outputs) values.at(value) = changed.at(value);
  begins_.erase(begins_.upper_bound(step), begins_.end());
  begins_.insert_or_assign(step, std::move(values));
  states_.clear();
}

BufferStates::States& BufferStates::states_of(at::ScalarType floating) {
  const auto found = states_.find(floating);
  if (found != states_.end()) return found->second;
  States states{Interpreter(graph_, changes_, floating, at::kCPU), begins_};
  for (auto& [step, values] : states.known)
    for (auto& [value, tensor] : values)
      if (tensor.scalar_type() == at::kFloat) tensor = tensor.to(floating);
  return states_.emplace(floating, std::move(states)).first->second;
}

BufferStates::Values BufferStates::after(const Interpreter& interpreter, const Values& before) const {
  const at::NoGradGuard values_only;
  Values values = before;
  for (const int value : changes_.outputs) values.at(value) = before.at(value).clone();
  std::vector<c10::IValue> inputs;
  for (const int value : changes_.inputs) inputs.emplace_back(values.at(value));
  const auto made = interpreter.run(std::move(inputs), nullptr);
  for (size_t i = 0; i < made.size(); ++i) values.at(changes_.outputs[i]) = made[i].toTensor();
  return values;
}

}  // namespace shardline
