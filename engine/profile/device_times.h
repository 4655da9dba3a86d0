// Measures the device of each rank while all ranks of its host work.
#pragma once
#include <c10/core/ScalarType.h>

#include <functional>

#include "engine/run/ranks.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// The FLOP/s of a square product that is large enough to occupy the whole device. The size is found by doubling rows
// and columns, up to 16384. seconds_of_product measures a product of a given size.
double product_rate(const std::function<double(int64_t size)>& seconds_of_product);

// Collective over the world; the slowest rank counts. type: the dtype of the matrix products.
DeviceMeasurement measure_device(const RankContext& context, at::ScalarType type);

}  // namespace shardline
