#include "tensor_parallel/ops/collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/model/backward.h"
#include "core/model/work_notes.h"

namespace shardline {
namespace {

// [tokens, n], padded with zero rows to T times the border rows.
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
  note_collective(Collective::Kind::all_gather, tokens * border.size(1) * border.element_size());
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
  using Kind = Collective::Kind;
  note_collective(tp.sequence_parallel ? Kind::reduce_scatter : Kind::all_reduce,
                  partial.numel() * partial.element_size());
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
  const int64_t tokens = whole.size(0), rows = border_rows(tokens, tp.size(), true);
  const int64_t first = std::min(tp.rank() * rows, tokens), valid = std::min(rows, tokens - first);
  auto mine = at::empty({rows, whole.size(1)}, whole.options().requires_grad(false));
  mine.narrow(0, 0, valid).copy_(whole.narrow(0, first, valid));
  mine.narrow(0, valid, rows - valid).zero_();
  return mine;
}

at::Tensor gathered_for_all(const TensorParallel& tp, const at::Tensor& border, int64_t tokens) {
  if (!tp.sequence_parallel || tp.size() == 1) return border;
  at::Tensor whole;
  {
    at::NoGradGuard no_grad;
    whole = gather_rows(tp, border, tokens);
  }
  return with_backward(whole, {border}, {}, "GatheredForAll", [tp](const at::Tensor& d_whole, const SavedTensors&) {
    return std::vector<at::Tensor>{slice_rows(tp, d_whole)};
  });
}

at::Tensor sliced_from_all(const TensorParallel& tp, const at::Tensor& whole) {
  if (!tp.sequence_parallel || tp.size() == 1) return whole;
  at::Tensor mine;
  {
    at::NoGradGuard no_grad;
    mine = slice_rows(tp, whole);
  }
  return with_backward(mine, {whole}, {}, "SlicedFromAll",
                       [tp, tokens = whole.size(0)](const at::Tensor& d_mine, const SavedTensors&) {
                         return std::vector<at::Tensor>{gather_rows(tp, d_mine, tokens)};
                       });
}

}  // namespace shardline
