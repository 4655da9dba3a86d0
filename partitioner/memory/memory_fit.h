// Whether a layout fits on its devices, and what to change if it does not.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "partitioner/memory/rank_memory.h"

namespace shardline {

struct MemoryFit {
  bool fits = false;
  int stage = 0;  // the stage with the most bytes
  double bytes = 0, limit = 0;
  std::string why;  // "stage 0 needs 51.2 GiB of 40.0 GiB: weights 5.1 GiB, ..."
};
MemoryFit memory_fit(const Cluster& cluster, const std::vector<MemoryBytes>& stages);

// The first change found that makes the layout fit at the same global batch. Kinds of changes are tried in this order,
// each starting with its smallest step: more and smaller microbatches, recomputation, sharding, offloading to the host;
// first each kind by itself, then combinations. Their costs in time are not compared. chunk_of_layer: the chunk of each
// layer in a changed layout. Empty: nothing helps.
struct MemoryAdvice {
  Layout layout;
  std::string text;  // "microbatches of 2 instead of 4; recompute each"
};
std::optional<MemoryAdvice> advice_to_fit(const Workload& workload, const Cluster& cluster, const Layout& layout,
                                          const std::function<std::vector<int>(const Layout&)>& chunk_of_layer);

}  // namespace shardline
