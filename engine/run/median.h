// The middle of measurements.
#pragma once
#include <vector>

namespace shardline {

double median(std::vector<double> values);  // at least one; the mean of the two middle ones of an even number

}  // namespace shardline
