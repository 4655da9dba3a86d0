#include "optim/flat/pass_values.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {

void PassValues::begin_run(std::vector<int> acquired) {
  acquired_ = std::move(acquired);
  next_ = 0;
  if (gathers_ && !acquired_.empty()) start_gathering(acquired_.front());
}

void PassValues::start_gathering(int layer) {
  for (auto* values : layers_[layer]) values->start_gathering();
}

int64_t PassValues::gathered_elements(int layer) const {
  int64_t elements = 0;
  for (const auto* values : layers_[layer])
    if (values->is_gathered()) elements += values->whole().numel();
  return elements;
}

void PassValues::acquire(int layer) {
  SL_ASSERT(next_ < acquired_.size() && acquired_[next_] == layer, "layer ", layer, " is acquired out of turn");
  ++next_;
  start_gathering(layer);
  for (auto* values : layers_[layer]) values->wait_until_whole();
  if (!gathers_ || next_ == acquired_.size()) return;
  const int next = acquired_[next_];
  if (most_gathered_ == 0 || gathered_elements(layer) + gathered_elements(next) <= most_gathered_)
    start_gathering(next);
}

// Keeps values that the next layer needs, too.
void PassValues::release(int layer) {
  if (!gathers_) return;
  const std::vector<FlatValues*> none;
  const auto& next = next_ < acquired_.size() ? layers_[acquired_[next_]] : none;
  for (auto* values : layers_[layer])
    if (std::find(next.begin(), next.end(), values) == next.end()) values->drop();
}

}  // namespace shardline
