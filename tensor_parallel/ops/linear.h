// The linear op, which owns its three products (products.h), and its two tensor-parallel forms (Shoeybi et al. 2019,
// arXiv 1909.08053; sequence parallelism: Korthikanti et al. 2022, arXiv 2205.05198). The backward pass computes the
// input gradient immediately and puts the weight gradient into the microbatch's queue; in between it keeps only x, as
// stored, and dy.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Outputs are split: w [n of this rank, k] (any logical shape whose last dimension is k), b [n of this rank] or null.
// x: border rows [rows, k] -> [tokens, n of this rank].
at::Tensor column_linear(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& w, Parameter* b,
                         WeightGradQueue* queue);

// Inputs are split: w [n, k of this rank] (any logical shape whose first dimension is n). There is no bias, because it
// must be added once, after the sum over ranks. x: [tokens, k of this rank] -> border rows [rows, n].
at::Tensor row_linear(const TensorParallel& tp, const at::Tensor& x, Parameter& w, WeightGradQueue* queue);

}  // namespace shardline
