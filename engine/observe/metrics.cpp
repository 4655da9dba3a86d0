#include "engine/observe/metrics.h"

#include <algorithm>

namespace shardline {

int64_t largest_resident(const StepMetrics& metrics) {
  int64_t largest = 0;
  for (const RankMemory& rank : metrics.peak_memory_bytes) largest = std::max(largest, rank.resident);
  return largest;
}

}  // namespace shardline
