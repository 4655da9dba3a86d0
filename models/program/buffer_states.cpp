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
    : graph_(std::move(graph)), changes_(changes), interpreter_(graph_, changes_, at::kFloat, at::kCPU) {
  known_.emplace(1, std::move(begin));
}

BufferStates::Values BufferStates::before(int64_t step) {
  const std::lock_guard lock(mutex_);
  step = std::max<int64_t>(step, 1);
  auto known = std::prev(known_.upper_bound(step));
  while (known->first < step) {
    known = known_.insert_or_assign(known->first + 1, after(known->second)).first;
    if (known_.size() <= kMostKnown) continue;
    const auto second = std::next(known_.begin());
    known_.erase(second == known ? std::prev(known_.end()) : second);
  }
  Values changed;
  for (const int value : changes_.outputs) changed[value] = known->second.at(value);
  return changed;
}

BufferStates::Values BufferStates::after(const Values& before) const {
  const at::NoGradGuard values_only;
  Values values = before;
  for (const int value : changes_.outputs) values.at(value) = before.at(value).clone();
  std::vector<c10::IValue> inputs;
  for (const int value : changes_.inputs) inputs.emplace_back(values.at(value));
  const auto made = interpreter_.run(std::move(inputs), nullptr);
  for (size_t i = 0; i < made.size(); ++i) values.at(changes_.outputs[i]) = made[i].toTensor();
  return values;
}

}  // namespace shardline
