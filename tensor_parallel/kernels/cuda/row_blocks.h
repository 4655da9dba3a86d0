// How kernels divide rows into blocks, whose sums are added up later, and the launch that adds them up.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/cuda/launch.h"

namespace shardline::cuda {

// The number of blocks depends only on the number of rows.
struct RowCut {
  explicit RowCut(int64_t rows_)
      : rows(rows_),
        block_rows(std::max<int64_t>(kLeastRows, (rows_ + kMostBlocks - 1) / kMostBlocks)),
        blocks((rows_ + block_rows - 1) / block_rows) {}
  static constexpr int64_t kMostBlocks = 256, kLeastRows = 4;
  int64_t rows, block_rows, blocks;
};

// How the columns of a row, or its groups of four columns, are assigned to threads, one per thread.
struct StripCut {
  explicit StripCut(int64_t items)
      : threads(std::clamp<int64_t>((items + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads)),
        count((items + threads - 1) / threads) {}
  static constexpr int kMostThreads = 256;
  int threads;    // per block
  int64_t count;  // the number of blocks
};

// total[j] += the sum of part[i * n + j] over i < blocks, always in the same order. Up to two such sums of equal size;
// those without a total are skipped.
struct PartSums {
  const float* part[2] = {};
  float* total[2] = {};
  int64_t blocks = 0, n = 0;
};
void add_part_sums(const PartSums& a, Stream stream);

}  // namespace shardline::cuda
