// Whether a layout fits its devices, and what to change where it does not.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "partitioner/memory/rank_memory.h"

namespace shardline {

struct MemoryFit {
  bool fits = false;
  int stage = 0;  // with the most bytes
  double bytes = 0, limit = 0;
  std::string why;  // "stage 0 needs 51.2 GiB of 40.0: weights 5.1, ..."
};
MemoryFit memory_fit(const Cluster& cluster, const std::vector<MemoryBytes>& stages);

// The cheapest change with which the layout fits at the same global batch: smaller microbatches and more of them first,
// then recomputing, then sharding, then moving to the host; alone where that is enough, otherwise together in this
// order. Empty: nothing helps.
struct MemoryAdvice {
  Layout layout;
  std::string text;  // "microbatches of 2 instead of 4; recompute each"
};
std::optional<MemoryAdvice> advice_to_fit(const Workload& workload, const Cluster& cluster, const Layout& layout);

}  // namespace shardline
