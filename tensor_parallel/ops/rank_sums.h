// The two ends of a region in which each of the T ranks computes with its part of some dimension, as ops with a
// backward (Megatron's f and g), and what leaves such a region. Tensors have any shape, and all rows on each rank.
#pragma once
#include <ATen/core/Tensor.h>

#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Into the region: returns the same tensor, which is whole on every rank. Each rank computes a part of its gradient,
// and these are summed.
at::Tensor enter_ranks(const TensorParallel& tp, const at::Tensor& whole);

// Out of the region: the sum of the ranks' partial sums. The gradient of each partial sum is that of the sum. May reuse
// `partial` if no gradient is needed.
at::Tensor add_over_ranks(const TensorParallel& tp, const at::Tensor& partial);

// Out of the region: a value that all ranks have computed alike. Its gradient, which is whole on every rank, goes back
// into the region only once, on the first rank.
at::Tensor leave_ranks(const TensorParallel& tp, const at::Tensor& same);

// As above, between border rows and the region, which has all tokens (sequence parallelism): what enters [rows, n] is
// gathered to [tokens, n], and the sum of partial sums [tokens, n] is returned as rows.
at::Tensor enter_from_rows(const TensorParallel& tp, const at::Tensor& border, int64_t tokens);
at::Tensor add_to_rows(const TensorParallel& tp, const at::Tensor& partial);

// Assembles a dimension of which each rank has the entries `places` (int64, on the tensor's device). Every rank gets
// the whole gradient of the result.
at::Tensor gathered_dimension(const TensorParallel& tp, const at::Tensor& part, int64_t dimension, int64_t size,
                              const at::Tensor& places);

}  // namespace shardline
