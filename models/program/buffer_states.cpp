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
    : graph_(std::move(graph)), changes_(changes), begin_(std::move(begin)) {}

BufferStates::Values BufferStates::before(int64_t step, at::ScalarType floating) {
  const std::lock_guard lock(mutex_);
  auto& [interpreter, states] = states_of(floating);
  step = std::max<int64_t>(step, 1);
  auto known = std::prev(states.upper_bound(step));
  while (known->first < step) {
    known = states.insert_or_assign(known->first + 1, after(interpreter, known->second)).first;
    if (states.size() <= kMostKnown) continue;
    const auto second = std::next(states.begin());
    states.erase(second == known ? std::prev(states.end()) : second);
  }
  Values changed;
  for (const int value : changes_.outputs) changed[value] = known->second.at(value);
  return changed;
}

BufferStates::States& BufferStates::states_of(at::ScalarType floating) {
  const auto found = states_.find(floating);
  if (found != states_.end()) return found->second;
  Values begin = begin_;
  for (auto& [value, tensor] : begin)
    if (tensor.scalar_type() == at::kFloat) tensor = tensor.to(floating);
  States states{Interpreter(graph_, changes_, floating, at::kCPU), {}};
  states.known.emplace(1, std::move(begin));
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
