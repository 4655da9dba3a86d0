#include "engine/run/median.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace shardline {

double median(std::vector<double> values) {
  SL_ASSERT(!values.empty(), "the median of no values");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : std::midpoint(values[middle - 1], values[middle]);
}

}  // namespace shardline
