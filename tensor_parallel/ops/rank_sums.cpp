#include "tensor_parallel/ops/rank_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"

namespace shardline {
namespace {

// Returns the sum as a new tensor.
at::Tensor summed(const TensorParallel& tp, const at::Tensor& partial, const char* what) {
  const at::Tensor sum = partial.detach().clone(at::MemoryFormat::Contiguous);
  note_collective(Collective::Kind::all_reduce, sum.nbytes());
  tp.comm->all_reduce(sum, {.what = what})->wait();
  return sum;
}

}  // namespace

at::Tensor enter_ranks(const TensorParallel& tp, const at::Tensor& whole) {
  if (tp.size() == 1 || !whole.requires_grad() || !at::GradMode::is_enabled()) return whole;
  SL_ASSERT(!tp.sequence_parallel, "with sequence parallelism, use enter_from_rows");
  return with_backward(whole, {whole}, {}, "EnterRanks", [tp](const at::Tensor& gradient, const SavedTensors&) {
    if (!gradient.defined()) return std::vector<at::Tensor>{gradient};  // undefined on all ranks
    return std::vector<at::Tensor>{summed(tp, gradient, "gradients of the ranks' parts")};
  });
}

at::Tensor add_over_ranks(const TensorParallel& tp, const at::Tensor& partial) {
  if (tp.size() == 1) return partial;
  SL_ASSERT(!tp.sequence_parallel, "with sequence parallelism, use add_to_rows");
  at::Tensor sum;
  {
    const at::NoGradGuard no_grad;
    sum = summed(tp, partial, "partial sums of the ranks");
  }
  return with_backward(sum, {partial}, {}, "AddOverRanks", [](const at::Tensor& gradient, const SavedTensors&) {
    return std::vector<at::Tensor>{gradient};
  });
}

at::Tensor leave_ranks(const TensorParallel& tp, const at::Tensor& same) {
  if (tp.size() == 1 || !same.requires_grad() || !at::GradMode::is_enabled()) return same;
  return with_backward(same, {same}, {}, "LeaveRanks", [tp](const at::Tensor& gradient, const SavedTensors&) {
    if (!gradient.defined() || tp.rank() == 0) return std::vector<at::Tensor>{gradient};
    return std::vector<at::Tensor>{at::zeros_like(gradient)};
  });
}

at::Tensor enter_from_rows(const TensorParallel& tp, const at::Tensor& border, int64_t tokens) {
  if (tp.size() == 1) return border;
  SL_ASSERT(tp.sequence_parallel, "without sequence parallelism, use enter_ranks");
  at::Tensor whole;
  {
    const at::NoGradGuard no_grad;
    whole = gather_rows(tp, border, tokens);
  }
  return with_backward(whole, {border}, {}, "EnterFromRows", [tp](const at::Tensor& gradient, const SavedTensors&) {
    if (!gradient.defined()) return std::vector<at::Tensor>{gradient};  // undefined on all ranks
    return std::vector<at::Tensor>{reduce_rows(tp, gradient)};
  });
}

at::Tensor add_to_rows(const TensorParallel& tp, const at::Tensor& partial) {
  if (tp.size() == 1) return partial;
  SL_ASSERT(tp.sequence_parallel, "without sequence parallelism, use add_over_ranks");
  at::Tensor rows;
  {
    const at::NoGradGuard no_grad;
    rows = reduce_rows(tp, partial);
  }
  return with_backward(rows, {partial}, {}, "AddToRows",
                       [tp, tokens = partial.size(0)](const at::Tensor& gradient, const SavedTensors&) {
                         return std::vector<at::Tensor>{gather_rows(tp, gradient, tokens)};
                       });
}

at::Tensor gathered_dimension(const TensorParallel& tp, const at::Tensor& part, int64_t dimension, int64_t size,
                              const at::Tensor& places) {
  at::Tensor whole;
  {
    const at::NoGradGuard no_grad;
    auto sizes = part.sizes().vec();
    sizes[dimension] = size;
    whole = at::zeros(sizes, part.options().requires_grad(false)).index_copy(dimension, places, part);
    note_collective(Collective::Kind::all_reduce, whole.nbytes());
    tp.comm->all_reduce(whole, {.what = "parts of a dimension"})->wait();
  }
  return with_backward(whole, {part}, {places}, "GatheredDimension",
                       [dimension](const at::Tensor& gradient, const SavedTensors& saved) {
                         return std::vector<at::Tensor>{gradient.index_select(dimension, saved[0])};
                       });
}

}  // namespace shardline
