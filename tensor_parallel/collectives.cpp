#include "tensor_parallel/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace shardline {
namespace {

// [tokens, n] with zero rows added up to T times the border rows.
at::Tensor padded(const TensorParallel& tp, const at::Tensor& whole) {
  const int64_t tokens = whole.size(0), rows = border_rows(tokens, tp.size(), true) * tp.size();
  if (rows == tokens) return whole.contiguous();
  auto result = at::zeros({rows, whole.size(1)}, whole.options());
  result.narrow(0, 0, tokens).copy_(whole);
  return result;
}

}  // namespace

at::Tensor gather_rows(const TensorParallel& tp, const at::Tensor& border, int64_t tokens) {
  return PendingGather(tp, border, tokens).wait();
}

PendingGather::PendingGather(const TensorParallel& tp, const at::Tensor& border, int64_t tokens)
    : border_(border), whole_(border), tokens_(tokens) {
  if (!tp.sequence_parallel || tp.size() == 1) return;
  border_ = border.contiguous();
  whole_ = at::empty({border.size(0) * tp.size(), border.size(1)}, border.options());
  work_ = tp.comm->all_gather(whole_, border_, {.what = "gather rows"});
}

at::Tensor PendingGather::wait() {
  if (!work_) return whole_;
  work_->wait();
  work_.reset();
  border_.reset();
  return whole_.narrow(0, 0, tokens_);
}

at::Tensor reduce_rows(const TensorParallel& tp, const at::Tensor& partial) {
  return PendingRows(tp, partial).wait();
}

PendingRows::PendingRows(const TensorParallel& tp, const at::Tensor& partial) : input_(partial), result_(partial) {
  if (tp.size() == 1) return;
  if (tp.sequence_parallel) {
    input_ = padded(tp, partial);
    result_ = at::empty({input_.size(0) / tp.size(), input_.size(1)}, input_.options());
    work_ = tp.comm->reduce_scatter(result_, input_, {.what = "reduce rows"});
  } else {
    input_ = result_ = partial.contiguous();
    work_ = tp.comm->all_reduce(result_, {.what = "reduce rows"});
  }
}

at::Tensor PendingRows::wait() {
  if (work_) work_->wait();
  work_.reset();
  input_.reset();
  return std::move(result_);
}

at::Tensor slice_rows(const TensorParallel& tp, const at::Tensor& whole) {
  if (!tp.sequence_parallel || tp.size() == 1) return whole;
  const int64_t rows = border_rows(whole.size(0), tp.size(), true);
  return padded(tp, whole).narrow(0, tp.rank() * rows, rows).clone();
}

}  // namespace shardline
