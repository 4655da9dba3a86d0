// The internal interface of a Registry.
#pragma once
#include "engine/observe/metrics.h"
#include "include/shardline/shardline.h"

namespace shardline {

// Registers in this process everything that was added since the last call. Throws ConfigError for names that are
// taken.
void use(const Registry& registry);

StepReport report_of(const StepMetrics& metrics);

}  // namespace shardline
