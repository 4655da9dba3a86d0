#include "engine/train/step_callbacks.h"

#include <utility>
#include <vector>

namespace shardline {
namespace {

std::vector<std::function<void(const StepMetrics&)>>& callbacks() {
  static std::vector<std::function<void(const StepMetrics&)>> all;
  return all;
}

}  // namespace

void add_step_callback(std::function<void(const StepMetrics&)> callback) {
  callbacks().push_back(std::move(callback));
}

void call_step_callbacks(const StepMetrics& metrics) {
  for (const auto& callback : callbacks()) callback(metrics);
}

}  // namespace shardline
