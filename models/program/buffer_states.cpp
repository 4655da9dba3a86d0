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
    if (known_.size() <= kMostKnown + started_.size()) continue;
    known_.erase(std::ranges::find_if(
        known_, [&](const auto& one) { return one.first != known->first && !started_.contains(one.first); }));
  }
  Values changed;
  for (const int value : changes_.outputs) changed[value] = known->second.at(value);
  return changed;
}

void BufferStates::restart(int64_t step, const Values& changed) {
  const std::lock_guard lock(mutex_);
  step = std::max<int64_t>(step, 1);
  Values values = known_.at(1);
  for (const int value : changes_.outputs) values.at(value) = changed.at(value);
  std::erase_if(known_, [&](const auto& one) { return one.first >= step || !started_.contains(one.first); });
  std::erase_if(started_, [&](int64_t other) { return other > step; });
  started_.insert(step);
  known_.insert_or_assign(step, std::move(values));
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
