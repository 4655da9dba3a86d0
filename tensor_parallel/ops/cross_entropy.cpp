#include "tensor_parallel/ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/error.h"
#include "core/model/backward.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/products/products.h"

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

// The loss of all rows, from each rank's own.
LossTerm sum_over_ranks(const TensorParallel& tp, const LossTerm& mine, at::Device device) {
  if (tp.size() == 1) return mine;
  const auto sums = at::tensor({mine.sum, mine.weight}, at::kDouble).to(device);
  tp.comm->all_reduce(sums, {.what = "loss of all rows"})->wait();
  return {sums[0].item<double>(), sums[1].item<double>()};
}

}  // namespace

at::Tensor head_cross_entropy(const TensorParallel& tp, const at::Tensor& x, Parameter& w, Parameter* b,
                              int64_t first_word, MicrobatchContext& context) {
  at::NoGradGuard no_grad;
  const bool train = context.mode == Mode::train;
  // A rank with all words needs none of the others for its border rows; else each has its words' part of all tokens.
  const bool split = w.spec->split_dim >= 0;
  const TensorParallel words = split ? tp : TensorParallel{};
  const auto input = gather_rows(words, x.detach(), context.batch->tokens());
  const int64_t tokens = split ? input.size(0) : valid_border_rows(tp, context.batch->tokens());
  const int64_t first_token = split || tokens == 0 || !tp.sequence_parallel ? 0 : tp.rank() * input.size(0);
  const auto label = shifted_labels(context.batch->labels).narrow(0, first_token, tokens);
  const auto valid = label != kNoLabel;
  const auto local_label = at::where(valid, label - first_word, int64_t{-1});
  const auto dx = train ? at::empty(input.sizes(), input.options()) : at::Tensor();
  if (train) dx.narrow(0, tokens, dx.size(0) - tokens).zero_();
  at::Tensor logits;
  if (tokens > 0) logits = at::empty({std::min(tokens, kHeadBlockTokens), w.value.size(0)}, input.options());

  LossTerm here;
  for (int64_t first = 0; first < tokens; first += kHeadBlockTokens) {
    const int64_t rows = std::min(kHeadBlockTokens, tokens - first);
    const auto block_x = input.narrow(0, first, rows), block_logits = logits.narrow(0, 0, rows);
    const auto block_label = local_label.narrow(0, first, rows), block_valid = valid.narrow(0, first, rows);
    linear_forward_out(block_logits, block_x, w.value, b ? b->value : at::Tensor());
    const auto [log_sum_exp, target] = whole_stats(words, block_logits, block_label);
    const auto losses = at::where(block_valid, log_sum_exp - target, 0.0);
    here.sum += losses.to(at::kDouble).sum().item<double>();
    here.weight += block_valid.sum().item<int64_t>();
    if (!train) continue;
    const auto scale = block_valid.to(log_sum_exp.scalar_type()) * context.loss_scale;
    cross_entropy_gradient_(block_logits, block_label, log_sum_exp, scale);
    linear_input_gradient_out(dx.narrow(0, first, rows), block_logits, w.value, false);
    if (w.grad.defined()) add_weight_gradient(w.grad, block_logits, block_x);
    if (b && b->grad.defined()) add_bias_gradient(b->grad, block_logits);
  }
  if (!split && tp.sequence_parallel) here = sum_over_ranks(tp, here, x.device());
  context.loss.sum += here.sum;
  context.loss.weight += here.weight;
  if (!train) return {};
  const auto loss = at::scalar_tensor(context.loss.sum * context.loss_scale, input.options().dtype(wide_type(input)));
  const auto d_border = reduce_rows(words, dx);
  at::AutoGradMode grad(true);
  return with_backward(loss, {x}, {d_border}, "HeadCrossEntropy",
                       [](const at::Tensor& d_loss, const SavedTensors& saved) {
                         return std::vector<at::Tensor>{d_loss.item<double>() == 1 ? saved[0] : saved[0] * d_loss};
                       });
}

at::Tensor head_last_logits(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                            const Microbatch& batch) {
  at::NoGradGuard no_grad;
  const auto whole = gather_rows(tp, x, batch.tokens());
  const auto last = whole.view({batch.batch(), batch.length(), -1}).select(1, batch.length() - 1).contiguous();
  const auto local = linear_forward(last, w.value, b ? b->value : at::Tensor());
  if (tp.size() == 1 || w.spec->split_dim < 0) return local.to(wide_type(local));
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
