#include "models/program/ops/cross_entropy_op.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

#include <utility>
#include <vector>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "models/program/ops/own_op.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {

bool is_own_cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) {
  const bool has_kernels =
      runs_loops(logits) || (is_accelerator(logits.device()) && logits.scalar_type() != at::kDouble);
  return smoothing == 0 && has_kernels && logits.layout() == at::kStrided && logits.dim() == 2 && logits.numel() > 0 &&
         logits.is_contiguous() && logits.scalar_type() == wide_type(logits) && target.dim() == 1 &&
         target.scalar_type() == at::kLong && target.size(0) == logits.size(0) && target.device() == logits.device();
}

void check_classes(const at::Tensor& target, int64_t ignored, int64_t classes) {
  if (is_accelerator(target.device())) return;
  const at::Tensor unknown = target.lt(0).logical_or_(target.ge(classes)).logical_and_(target.ne(ignored));
  if (unknown.any().item<bool>())
    throw RunError(cat("the label ", target.masked_select(unknown)[0].item<int64_t>(), " is not one of the ", classes,
                       " classes of the loss; check the labels of the data"));
}

at::Tensor own_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target, int64_t ignored) {
  check_classes(target, ignored, logits.size(1));
  at::Tensor label, log_sum_exp, sum;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor counts = target.ne(ignored);
    label = at::where(counts, target, int64_t{-1});
    const auto [largest, exponentials, of_label] = cross_entropy_stats(logits.detach(), label);
    log_sum_exp = largest + exponentials.log();
    sum = at::where(counts, log_sum_exp - of_label, 0.0).to(at::kDouble).sum().to(logits.scalar_type());
  }
  return with_own_backward(sum, {logits}, {}, {logits, label, log_sum_exp}, "CrossEntropy",
                           [](const at::Tensor& d_sum, const SavedTensors& kept, const std::vector<at::Tensor>&) {
                             at::Tensor gradient = kept[0].storage().use_count() == 1 ? kept[0] : kept[0].clone();
                             cross_entropy_gradient_(gradient, kept[1], kept[2],
                                                     kept[1].ge(0).to(kept[2].scalar_type()) * d_sum);
                             return std::vector<at::Tensor>{std::move(gradient)};
                           });
}

}  // namespace shardline
