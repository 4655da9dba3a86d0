// What a program runs after each step of `train`, on every rank.
#pragma once
#include <functional>

#include "engine/observe/metrics.h"

namespace shardline {

void add_step_callback(std::function<void(const StepMetrics&)> callback);
void call_step_callbacks(const StepMetrics& metrics);

}  // namespace shardline
