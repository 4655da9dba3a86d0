// From a layout of the planner back to the config that means it.
#pragma once
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// "smp_options.microbatches=8", ...: what to set in `config`, which means `from`, to get `layout` at the same global
// batch and in `precision`. Samples are then cut by global_batch_size and microbatches alone.
std::vector<std::string> settings_of(const Config& config, const Layout& layout, const Layout& from,
                                     int64_t global_batch, Precision precision);

// Those that say what replicas share out.
std::vector<std::string> sharding_settings(const Layout& layout);

}  // namespace shardline
