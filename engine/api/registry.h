// The inner side of a Registry.
#pragma once
#include "engine/observe/metrics.h"
#include "include/shardline/shardline.h"

namespace shardline {

// Makes everything that has been added and is not known yet known in this process. Throws ConfigError for names that
// are taken.
void use(const Registry& registry);

StepReport report_of(const StepMetrics& metrics);

}  // namespace shardline
