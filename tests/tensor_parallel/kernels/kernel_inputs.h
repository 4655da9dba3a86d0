// Sizes and dropouts that the tests of the kernels share.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

inline const std::vector<std::pair<int64_t, int64_t>> kShapes = {{0, 8},    {1, 1},    {5, 3},
                                                                 {17, 768}, {130, 65}, {3, 5000}};

// Seven positions a sample, the last of each being padding.
inline DropoutRows dropout_rows_of(int64_t rows, double probability) {
  DropoutRows d{.seed = 77, .op = 5, .step = 9, .probability = probability, .sample = {}, .position = {}};
  for (int64_t i = 0; i < rows; ++i) {
    d.sample.push_back(i % 7 == 6 ? -1 : 3 + i / 7);
    d.position.push_back(i % 7);
  }
  return d;
}

}  // namespace shardline
