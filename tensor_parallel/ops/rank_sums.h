// The two ends of a region in which each of the T ranks computes with its part of some dimension, as ops with a
// backward (Megatron's f and g), and what leaves such a region. They run on tensors of any form, all rows on each rank.
#pragma once
#include <ATen/core/Tensor.h>

#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Into the region: the same tensor, which is whole on every rank. Each rank finds a part of its gradient, and these are
// added.
at::Tensor enter_ranks(const TensorParallel& tp, const at::Tensor& whole);

// Out of it: the sum of the ranks' partial sums. Its gradient is that of each of them. May reuse `partial` where
// nothing has a gradient.
at::Tensor add_over_ranks(const TensorParallel& tp, const at::Tensor& partial);

// Out of it: what each rank has computed alike. Its gradient, which is whole on every rank, goes back into the region
// once, on the first rank.
at::Tensor leave_ranks(const TensorParallel& tp, const at::Tensor& same);

// The same between rows of borders and the region, which has all tokens (sequence parallelism): what enters [rows, n]
// is gathered to [tokens, n], and the sum of partial sums [tokens, n] becomes rows.
at::Tensor enter_from_rows(const TensorParallel& tp, const at::Tensor& border, int64_t tokens);
at::Tensor add_to_rows(const TensorParallel& tp, const at::Tensor& partial);

// The whole of a dimension of which each rank has the entries `places` (int64, on the tensor's device). Every rank gets
// the whole gradient of the result.
at::Tensor gathered_dimension(const TensorParallel& tp, const at::Tensor& part, int64_t dimension, int64_t size,
                              const at::Tensor& places);

}  // namespace shardline
