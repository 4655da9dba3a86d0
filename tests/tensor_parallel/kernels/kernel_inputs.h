// Sizes and dropouts shared by the tests of the kernels.
#pragma once
#include <ATen/ops/arange.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

inline const std::vector<std::pair<int64_t, int64_t>> kShapes = {{0, 8},    {1, 1},    {5, 3},
                                                                 {17, 768}, {130, 65}, {3, 5000}};

// Rows that begin in the middle of the first sequence of seven tokens; the last rows are padding.
inline DropoutRows dropout_rows_of(int64_t rows, double probability) {
  constexpr int64_t kLength = 7, kFirst = 3;
  const int64_t sequences = (kFirst + rows) / kLength;
  return {.seed = 77,
          .op = 5,
          .step = 9,
          .probability = probability,
          .samples = at::arange(3, 3 + sequences, at::kLong).repeat_interleave(kLength),
          .places = at::arange(2, 2 + kLength, at::kLong).repeat({sequences}),
          .first_token = kFirst,
          .tokens = sequences * kLength};
}

}  // namespace shardline
