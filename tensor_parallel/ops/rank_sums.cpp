#include "tensor_parallel/ops/rank_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"

namespace shardline {
namespace {

// A new tensor.
at::Tensor summed(const TensorParallel& tp, const at::Tensor& partial, const char* what) {
  const at::Tensor sum = partial.detach().clone(at::MemoryFormat::Contiguous);
  note_collective(Collective::Kind::all_reduce, sum.nbytes());
  tp.comm->all_reduce(sum, {.what = what})->wait();
  return sum;
}

}  // namespace

at::Tensor enter_ranks(const TensorParallel& tp, const at::Tensor& whole) {
  if (tp.size() == 1 || !whole.requires_grad() || !at::GradMode::is_enabled()) return whole;
  SL_ASSERT(!tp.sequence_parallel, "a rank has all rows of what enters");
  return with_backward(whole, {whole}, {}, "EnterRanks", [tp](const at::Tensor& gradient, const SavedTensors&) {
    if (!gradient.defined()) return std::vector<at::Tensor>{gradient};  // on no rank
    return std::vector<at::Tensor>{summed(tp, gradient, "gradients of the ranks' parts")};
  });
}

at::Tensor add_over_ranks(const TensorParallel& tp, const at::Tensor& partial) {
  if (tp.size() == 1) return partial;
  SL_ASSERT(!tp.sequence_parallel, "a rank has all rows of what is added");
  at::Tensor sum;
  {
    const at::NoGradGuard no_grad;
    sum = summed(tp, partial, "partial sums of the ranks");
  }
  return with_backward(sum, {partial}, {}, "AddOverRanks", [](const at::Tensor& gradient, const SavedTensors&) {
    return std::vector<at::Tensor>{gradient};
  });
}

at::Tensor gathered_dimension(const TensorParallel& tp, const at::Tensor& part, int64_t dimension, int64_t size,
                              const at::Tensor& places) {
  const at::NoGradGuard no_grad;
  auto sizes = part.sizes().vec();
  sizes[dimension] = size;
  const at::Tensor whole = at::zeros(sizes, part.options()).index_copy(dimension, places, part);
  tp.comm->all_reduce(whole, {.what = "parts of a dimension"})->wait();
  return whole;
}

}  // namespace shardline
