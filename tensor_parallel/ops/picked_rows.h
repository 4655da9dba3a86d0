// The rows of a microbatch that a head uses, as an index: int64 [n], ascending, on the device of the batch (undefined:
// all rows). The rows stay distributed: if the microbatch's rows are border rows of the T ranks, the picked rows are
// border rows of n tokens.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// One row of each segment; segments must not be empty.
at::Tensor first_rows(const Microbatch& batch);
at::Tensor last_rows(const Microbatch& batch);
// The rows with a label; in a dry run, where labels are unknown, this fraction of all rows.
at::Tensor labelled_rows(const Microbatch& batch, double share);

int64_t count_of_rows(const Microbatch& batch, const at::Tensor& rows);
// The picked rows of a tensor of all rows or tokens [tokens, ...]; the tensor itself in a dry run or if undefined.
at::Tensor values_of_rows(const at::Tensor& all, const at::Tensor& rows);

// x: border rows of the microbatch [rows, hidden] -> border rows of the picked rows. Padding rows are zero.
at::Tensor picked_rows(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, const at::Tensor& rows);

}  // namespace shardline
