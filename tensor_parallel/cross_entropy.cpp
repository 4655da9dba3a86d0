#include "tensor_parallel/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/backward.h"
#include "core/error.h"
#include "tensor_parallel/kernels.h"
#include "tensor_parallel/products.h"
#include "tensor_parallel/row_kernels.h"

namespace shardline {
namespace {

constexpr int64_t kNoLabel = -100;

// [batch, length] -> [tokens]: the label that each position predicts.
at::Tensor shifted_labels(const at::Tensor& labels) {
  auto shifted = at::full_like(labels, kNoLabel);
  if (labels.size(1) > 1) shifted.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  return shifted.reshape({-1});
}

// Every row's log of the sum of exponentials over the whole vocabulary, and the logit of its label.
std::pair<at::Tensor, at::Tensor> whole_stats(const TensorParallel& tp, const at::Tensor& logits,
                                              const at::Tensor& label) {
  auto [largest, sum, target] = cross_entropy_stats(logits, label);
  if (tp.size() == 1) return {largest + sum.log(), target};
  const auto all = gather_to_all(*tp.comm, at::stack({largest, sum, target}));  // [T, 3, rows]
  const auto all_largest = all.select(1, 0);
  const auto top = all_largest.amax(0);
  const auto scaled = all.select(1, 1) * (all_largest - top).exp();
  return {top + scaled.sum(0).log(), all.select(1, 2).sum(0)};
}

}  // namespace

at::Tensor head_cross_entropy(const TensorParallel& tp, const at::Tensor& x, Parameter& w, int64_t first_word,
                              MicrobatchContext& context) {
  at::NoGradGuard no_grad;
  const int64_t tokens = context.batch->tokens();
  const bool train = context.mode == Mode::train;
  const auto whole = gather_rows(tp, x.detach(), tokens);
  const auto label = shifted_labels(context.batch->labels);
  const auto valid = label != kNoLabel;
  const auto local_label = at::where(valid, label - first_word, int64_t{-1});
  const auto dx = train ? at::empty({tokens, whole.size(1)}, whole.options()) : at::Tensor();
  at::Tensor logits;
  if (tokens > 0) logits = at::empty({std::min(tokens, kHeadBlockTokens), w.value.size(0)}, whole.options());

  for (int64_t first = 0; first < tokens; first += kHeadBlockTokens) {
    const int64_t rows = std::min(kHeadBlockTokens, tokens - first);
    const auto block_x = whole.narrow(0, first, rows), block_logits = logits.narrow(0, 0, rows);
    const auto block_label = local_label.narrow(0, first, rows), block_valid = valid.narrow(0, first, rows);
    linear_forward_out(block_logits, block_x, w.value, {});
    const auto [log_sum_exp, target] = whole_stats(tp, block_logits, block_label);
    const auto losses = at::where(block_valid, log_sum_exp - target, 0.0);
    context.loss.sum += losses.to(at::kDouble).sum().item<double>();
    context.loss.weight += static_cast<double>(block_valid.sum().item<int64_t>());
    if (!train) continue;
    const auto scale = block_valid.to(log_sum_exp.scalar_type()) * context.loss_scale;
    cross_entropy_gradient_(block_logits, block_label, log_sum_exp, scale);
    linear_input_gradient_out(dx.narrow(0, first, rows), block_logits, w.value, false);
    if (w.grad.defined()) add_weight_gradient(w.grad, block_logits, block_x);
  }
  if (!train) return {};
  const auto loss = at::scalar_tensor(context.loss.sum * context.loss_scale, whole.options().dtype(wide_type(whole)));
  const auto d_border = reduce_rows(tp, dx);
  at::AutoGradMode grad(true);
  return with_backward(loss, {x}, {d_border}, "HeadCrossEntropy",
                       [](const at::Tensor& d_loss, const SavedTensors& saved) {
                         return std::vector<at::Tensor>{d_loss.item<double>() == 1 ? saved[0] : saved[0] * d_loss};
                       });
}

at::Tensor head_last_logits(const TensorParallel& tp, const at::Tensor& x, const Parameter& w,
                            const Microbatch& batch) {
  at::NoGradGuard no_grad;
  const auto whole = gather_rows(tp, x, batch.tokens());
  const auto last = whole.view({batch.batch(), batch.length(), -1}).select(1, batch.length() - 1).contiguous();
  const auto local = linear_forward(last, w.value, {});
  if (tp.size() == 1) return local.to(wide_type(local));
  // Parts of the vocabulary differ by at most one entry: all are sent with the size of the largest.
  const int64_t vocabulary = w.spec->shape[0], widest = w.spec->split(0, tp.size()).length;
  auto padded = at::zeros({batch.batch(), widest}, local.options());
  padded.narrow(1, 0, local.size(1)).copy_(local);
  const auto all = gather_to_all(*tp.comm, padded);
  std::vector<at::Tensor> parts;
  for (int t = 0; t < tp.size(); ++t) parts.push_back(all[t].narrow(1, 0, w.spec->split(t, tp.size()).length));
  const auto logits = at::cat(parts, 1);
  SL_ASSERT(logits.size(1) == vocabulary, logits.size(1), " logits for a vocabulary of ", vocabulary);
  return logits.to(wide_type(logits));
}

}  // namespace shardline
