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

// The whole of a dimension of which each rank has the entries `places` (int64, on the tensor's device), without a
// gradient.
at::Tensor gathered_dimension(const TensorParallel& tp, const at::Tensor& part, int64_t dimension, int64_t size,
                              const at::Tensor& places);

}  // namespace shardline
