// From a layout of the planner back to the config that means it.
#pragma once
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "partitioner/layout.h"

namespace shardline {

// "smp_options.microbatches=8", ...: what to set in `config`, which means `from`, to get `layout` at the same global
// batch. Samples are then cut by global_batch_size and microbatches alone.
std::vector<std::string> settings_of(const Config& config, const Layout& layout, const Layout& from,
                                     int64_t global_batch);

// Those that say what replicas share out.
std::vector<std::string> sharding_settings(const Layout& layout);

// What the layout needs that `train` cannot do yet, each in a few words.
std::vector<std::string> not_yet_built(const Layout& layout, Precision precision);

}  // namespace shardline
