#include "tensor_parallel/ops/class_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"

namespace shardline {
namespace {

// What all ranks know about each row.
struct RowSums {
  at::Tensor log_sum_exp, expected;  // [rows]; expected: the expected logit under the target
};

RowSums sums_of_rows(const TensorParallel& tp, const at::Tensor& logits, const at::Tensor& local,
                     const at::Tensor& is_mine, const ClassSplit& classes) {
  const at::Tensor largest = logits.amax(1);
  const at::Tensor sum = (logits - largest.unsqueeze(1)).exp_().sum(1);
  at::Tensor expected = logits.gather(1, local.unsqueeze(1)).squeeze(1) * is_mine;
  if (classes.smoothing > 0)
    expected = expected * (1 - classes.smoothing) + logits.sum(1) * (classes.smoothing / double(classes.count));
  note_collective(Collective::Kind::all_gather, tp.size() * 3 * largest.nbytes());
  const at::Tensor all = gather_to_all(*tp.comm, at::stack({largest, sum, expected}));  // [T, 3, rows]
  const at::Tensor all_largest = all.select(1, 0), top = all_largest.amax(0);
  const at::Tensor scaled = all.select(1, 1) * (all_largest - top).exp();
  return {top + scaled.sum(0).log(), all.select(1, 2).sum(0)};
}

}  // namespace

at::Tensor split_cross_entropy_sum(const TensorParallel& tp, const at::Tensor& logits, const at::Tensor& target,
                                   const ClassSplit& classes) {
  at::Tensor sum, gradient;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor x = logits.detach(), counts = target.ne(classes.ignored);
    const auto is_known = [&] { return target.ge(0).logical_and_(target.lt(classes.count)); };
    // Checks labels as at::cross_entropy_loss does on CPUs; on an accelerator, the host would have to wait.
    if (!is_accelerator(x.device()) && counts.logical_and(is_known().logical_not_()).any().item<bool>())
      throw RunError(
          cat("a label is not one of the ", classes.count, " classes of the loss; check the labels of the data"));
    const at::Tensor place = target - classes.mine.begin;
    const at::Tensor is_mine = counts.logical_and(place.ge(0)).logical_and_(place.lt(classes.mine.length));
    const at::Tensor local = at::where(is_mine, place, 0);
    const RowSums rows = sums_of_rows(tp, x, local, is_mine, classes);
    sum = at::where(counts, rows.log_sum_exp - rows.expected, 0.0).sum();
    gradient = (x - rows.log_sum_exp.unsqueeze(1)).exp_();
    if (classes.smoothing > 0) gradient.sub_(classes.smoothing / double(classes.count));
    const at::Tensor of_target = is_mine.to(x.scalar_type()).mul_(1 - classes.smoothing);
    gradient.scatter_add_(1, local.unsqueeze(1), of_target.neg().unsqueeze(1));
    gradient.mul_(counts.unsqueeze(1));
  }
  return with_backward(
      sum, {logits}, {gradient}, "SplitCrossEntropy",
      [](const at::Tensor& d_sum, const SavedTensors& saved) { return std::vector<at::Tensor>{saved[0] * d_sum}; });
}

}  // namespace shardline
