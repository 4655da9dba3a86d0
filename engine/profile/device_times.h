// Measures the device of each rank while all ranks of its host work.
#pragma once
#include <c10/core/ScalarType.h>

#include "engine/run/ranks.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// Collective over the world; the slowest rank counts. type: of the matrix products.
DeviceMeasurement measure_device(const RankContext& context, at::ScalarType type);

}  // namespace shardline
