// The collectives used by the tensor-parallel ops, on [rows, n] tensors. At a border, a rank holds all tokens ("speed")
// or, with sequence parallelism ("memory"), its `border_rows` of them, where the last rows of the last ranks are
// padding. Rows are sent in their own type. Communicators add half precision in fp32, in rank order, and round once;
// each partial sum was rounded when its rank's product ended.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/comm/communicator.h"
#include "core/model/layer.h"

namespace shardline {

// One rank's place among the T ranks, and the rows at borders. Without a communicator: a single rank, for ops that have
// whole parameters and need no other rank for their rows.
struct TensorParallel {
  Communicator* comm = nullptr;
  bool sequence_parallel = false;

  int rank() const { return comm ? comm->rank() : 0; }
  int size() const { return comm ? comm->size() : 1; }
};

// Border rows -> all tokens [tokens, n]. Without sequence parallelism: the same tensor.
at::Tensor gather_rows(const TensorParallel& tp, const at::Tensor& border, int64_t tokens);

// The same, started now and needed later, so that other work can be done in between.
class PendingGather {
 public:
  PendingGather(const TensorParallel& tp, const at::Tensor& border, int64_t tokens);
  at::Tensor wait();

 private:
  at::Tensor border_, whole_;
  int64_t tokens_;
  WorkPtr work_;
};

// Sums the ranks' partial sums [tokens, n] into border rows. Padding rows are zero. May reuse `partial`.
at::Tensor reduce_rows(const TensorParallel& tp, const at::Tensor& partial);

// The same, started now and needed later.
class PendingRows {
 public:
  PendingRows(const TensorParallel& tp, const at::Tensor& partial);
  at::Tensor wait();

 private:
  at::Tensor input_, result_;
  WorkPtr work_;
};

// This rank's border rows of a tensor that every rank has whole (no communication); padding rows are zero.
at::Tensor slice_rows(const TensorParallel& tp, const at::Tensor& whole);

// gather_rows and slice_rows as differentiable ops, around work that every rank repeats for all tokens. The gradient of
// the gathered tensor is whole on every rank, and each rank takes its own rows of it. The gradient of the slice is
// split by rows, and is gathered. Without sequence parallelism, both return their argument.
at::Tensor gathered_for_all(const TensorParallel& tp, const at::Tensor& border, int64_t tokens);
at::Tensor sliced_from_all(const TensorParallel& tp, const at::Tensor& whole);

}  // namespace shardline
