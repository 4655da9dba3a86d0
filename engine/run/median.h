// The median of measurements.
#pragma once
#include <vector>

namespace shardline {

double median(std::vector<double> values);  // needs at least one; for an even number, the mean of the two middle ones

}  // namespace shardline
