// The small sums of squares from which the gradient norm is computed, on processors and accelerators alike.
#pragma once
#include <cstdint>

namespace shardline {

// The number of consecutive elements of a parameter, from its start, that form a leaf. Shards never cut a leaf.
constexpr int64_t kNormLeaf = 16;

template <typename T>
constexpr double norm_leaf(const T* g) {
  double lanes[4] = {};
  for (int64_t i = 0; i < kNormLeaf; i += 4)
    for (int64_t lane = 0; lane < 4; ++lane) {
      const double value = g[i + lane];
      lanes[lane] += value * value;
    }
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace shardline
