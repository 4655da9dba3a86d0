#include "tensor_parallel/ops/picked_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"
#include "tensor_parallel/ops/elementwise.h"

namespace shardline {
namespace {

at::Tensor empty_index(const Microbatch& batch, int64_t count) {
  return at::empty({count}, batch.ids.options().dtype(at::kLong));
}

at::Tensor end_rows_of_segments(const Microbatch& batch, bool last) {
  if (batch.ids.is_meta()) return empty_index(batch, batch.segments());
  std::vector<int64_t> rows;
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    SL_ASSERT(end > begin, "a segment without rows at row ", begin);
    rows.push_back(last ? end - 1 : begin);
    begin = end;
  }
  return on_device(at::tensor(rows, at::kLong), batch.ids.device());
}

// The positions of the picked rows among a rank's own rows. A row of another rank has an arbitrary position and is
// marked as `foreign`.
struct OwnRows {
  OwnRows(const TensorParallel& tp, int64_t tokens, const at::Tensor& rows) {
    const Range mine = tokens_of_rows(tp, tokens);
    const auto local = rows - mine.begin;
    foreign = local.lt(0).logical_or_(local.ge(mine.length)).unsqueeze_(1);
    places = local.clamp_(0, std::max<int64_t>(mine.length - 1, 0));
  }
  at::Tensor places;   // [n]
  at::Tensor foreign;  // [n, 1] bool
};

// [n, hidden]; on a rank that has only some of the rows, zeros for the others.
at::Tensor own_picks(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, const at::Tensor& rows) {
  if (x.is_meta()) return at::empty({rows.numel(), x.size(1)}, x.options());
  if (!tp.sequence_parallel || rows.numel() == 0) return x.index_select(0, rows);
  const OwnRows own(tp, tokens, rows);
  return x.index_select(0, own.places).masked_fill_(own.foreign, 0);
}

// dx[row] = the gradient of the row's pick; each row is picked at most once.
void put_picks(const TensorParallel& tp, const at::Tensor& dx, int64_t tokens, const at::Tensor& rows,
               const at::Tensor& d_picks) {
  if (dx.is_meta() || rows.numel() == 0) return;
  if (!tp.sequence_parallel) {
    dx.index_copy_(0, rows, d_picks);
    return;
  }
  const OwnRows own(tp, tokens, rows);
  dx.index_add_(0, own.places, d_picks.masked_fill(own.foreign, 0));
}

}  // namespace

at::Tensor first_rows(const Microbatch& batch) {
  return end_rows_of_segments(batch, false);
}

at::Tensor last_rows(const Microbatch& batch) {
  return end_rows_of_segments(batch, true);
}

at::Tensor labelled_rows(const Microbatch& batch, double share) {
  if (batch.ids.is_meta()) return empty_index(batch, std::ceil(share * batch.tokens()));
  if (!batch.labels.defined()) return empty_index(batch, 0);
  const HostWait wait("number of labelled rows");
  return (batch.labels != kNoLabel).nonzero().squeeze(1);
}

int64_t count_of_rows(const Microbatch& batch, const at::Tensor& rows) {
  return rows.defined() ? rows.numel() : batch.tokens();
}

at::Tensor values_of_rows(const at::Tensor& all, const at::Tensor& rows) {
  return !all.defined() || !rows.defined() || all.is_meta() ? all : all.index_select(0, rows);
}

at::Tensor picked_rows(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, const at::Tensor& rows) {
  if (!rows.defined()) return x;
  const int64_t count = rows.numel();
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    note_sweep(count * x.size(1), 2);
    y = own_picks(tp, x.detach(), tokens, rows);
    if (tp.sequence_parallel) y = reduce_rows(tp, y);
  }
  const auto sizes = x.sizes().vec();
  return with_backward(y, {x}, {rows}, "PickedRows",
                       [tp, tokens, count, sizes, options = x.options().requires_grad(false)](
                           const at::Tensor& dy, const SavedTensors& saved) {
                         const auto d_picks = gather_rows(tp, dy.contiguous(), count);
                         const auto dx = at::zeros(sizes, options);
                         note_sweep(dx.numel(), 1);
                         put_picks(tp, dx, tokens, saved[0], d_picks);
                         return std::vector<at::Tensor>{dx};
                       });
}

}  // namespace shardline
