// What one rank's device does while all ranks of its host work.
#pragma once
#include "engine/ranks.h"
#include "partitioner/profile.h"

namespace shardline {

// Collective over the world; the slowest rank counts. dtype: of ModelOptions ("float32", "float64").
DeviceMeasurement measure_device(const RankContext& context, const std::string& dtype);

}  // namespace shardline
