#include "tensor_parallel/ops/label_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/work_notes.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/scaled_loss.h"

namespace shardline {
namespace {

// For some rows: the loss and weight of each [rows], and the gradients of their losses [rows, labels].
struct RowLosses {
  at::Tensor losses, weights, gradient;
};

void note_logits(const at::Tensor& logits) {
  note_sweep(logits.numel(), 4, 0, 4);
}

// This rank's part of a tensor with a value per row; in a dry run, an empty tensor of the same size.
at::Tensor own_part(const at::Tensor& all, const at::Tensor& logits, const Range& mine, at::ScalarType type) {
  if (logits.is_meta()) return at::empty({mine.length}, logits.options().dtype(type));
  return all.narrow(0, mine.length == 0 ? 0 : mine.begin, mine.length).to(type);
}

// [rows] or [rows, labels] -> [rows, labels]
at::Tensor with_columns(const at::Tensor& values) {
  return values.dim() == 1 ? values.unsqueeze(1) : values;
}

// `compute` receives the logits of this rank's rows in their wide type, and the range of these rows.
at::Tensor loss_of_rows(const TensorParallel& tp, const at::Tensor& logits, int64_t count, MicrobatchContext& context,
                        const std::function<RowLosses(const at::Tensor& logits, const Range& mine)>& compute) {
  const at::NoGradGuard no_grad;
  note_logits(logits);
  const Range mine = tokens_of_rows(tp, count);
  const RowLosses rows = compute(logits.detach().narrow(0, 0, mine.length).to(wide_type(logits)), mine);
  if (!logits.is_meta()) {
    const auto sums = at::stack({rows.losses.sum(at::kDouble), rows.weights.sum(at::kDouble)});
    if (tp.sequence_parallel && tp.size() > 1) tp.comm->all_reduce(sums, {.what = "loss of all rows"})->wait();
    const auto known = on_host(sums, "loss of a microbatch");
    context.loss.sum += known[0].item<double>();
    context.loss.weight += known[1].item<double>();
  }
  if (context.mode != Mode::train) return {};
  const auto gradient = at::zeros_like(logits);
  gradient.narrow(0, 0, mine.length).copy_(rows.gradient * context.loss_scale);
  return scaled_loss(logits, gradient, context);
}

// The loss of one column of answer logits and its gradient, for rows [begin, end) of a segment.
double answer_of_segment(const double* logits, double* gradient, int64_t begin, int64_t end, int64_t target) {
  constexpr int64_t kStride = 2;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t row = begin; row < end; ++row) largest = std::max(largest, logits[row * kStride]);
  for (int64_t row = begin; row < end; ++row) sum += std::exp(logits[row * kStride] - largest);
  for (int64_t row = begin; row < end; ++row)
    gradient[row * kStride] = std::exp(logits[row * kStride] - largest) / sum * 0.5;
  gradient[(begin + target) * kStride] -= 0.5;
  return (largest + std::log(sum) - logits[(begin + target) * kStride]) / 2;
}

// logits and gradient [tokens, 2] must be in host memory.
LossTerm answers(const Microbatch& batch, const at::Tensor& logits, const at::Tensor& gradient) {
  const auto targets = on_host(batch.targets, "answers of a microbatch").contiguous();
  SL_ASSERT(targets.scalar_type() == at::kLong && targets.numel() == 2 * batch.segments(), targets.sizes(),
            " targets of ", batch.segments(), " segments");
  const auto* rows = targets.const_data_ptr<int64_t>();
  const auto* given = logits.const_data_ptr<double>();
  auto* made = gradient.mutable_data_ptr<double>();
  LossTerm loss;
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    const int64_t first = rows[0], last = rows[1];
    const auto is_inside = [&](int64_t row) { return row >= 0 && row < end - begin; };
    if (is_inside(first) && is_inside(last)) {
      loss.sum +=
          answer_of_segment(given, made, begin, end, first) + answer_of_segment(given + 1, made + 1, begin, end, last);
      loss.weight += 1;
    }
    begin = end;
    rows += 2;
  }
  return loss;
}

}  // namespace

at::Tensor class_loss(const TensorParallel& tp, const at::Tensor& logits, int64_t count, const at::Tensor& classes,
                      MicrobatchContext& context) {
  return loss_of_rows(tp, logits, count, context, [&](const at::Tensor& z, const Range& mine) -> RowLosses {
    const auto label = own_part(classes, logits, mine, at::kLong);
    const auto weight = (label != kNoLabel).to(z.scalar_type());
    const int64_t labels = z.size(1);
    const double share = context.label_smoothing;
    auto expected = label.unsqueeze(1).eq(at::arange(labels, label.options())).to(z.scalar_type());
    if (share > 0) expected = expected * (1 - share) + share / labels;
    const auto log_probability = at::log_softmax(z, 1);
    const auto losses = (expected * log_probability).sum(1).neg() * weight;
    return {losses, weight, (log_probability.exp() - expected) * weight.unsqueeze(1)};
  });
}

at::Tensor squared_loss(const TensorParallel& tp, const at::Tensor& logits, int64_t count, const at::Tensor& numbers,
                        MicrobatchContext& context) {
  return loss_of_rows(tp, logits, count, context, [&](const at::Tensor& z, const Range& mine) -> RowLosses {
    const auto error = z - with_columns(own_part(numbers, logits, mine, z.scalar_type()));
    const auto losses = (error * error).mean(1);
    return {losses, at::ones_like(losses), error * (2.0 / z.size(1))};
  });
}

at::Tensor binary_loss(const TensorParallel& tp, const at::Tensor& logits, int64_t count, const at::Tensor& present,
                       MicrobatchContext& context) {
  return loss_of_rows(tp, logits, count, context, [&](const at::Tensor& z, const Range& mine) -> RowLosses {
    const auto is = with_columns(own_part(present, logits, mine, z.scalar_type()));
    const auto positive = z.clamp_min(0);
    const auto losses = (positive - z * is + (z - positive * 2).exp().log1p()).mean(1);
    return {losses, at::ones_like(losses), (z.sigmoid() - is) / z.size(1)};
  });
}

at::Tensor answer_loss(const TensorParallel& tp, const at::Tensor& logits, MicrobatchContext& context) {
  const at::NoGradGuard no_grad;
  note_logits(logits);
  const Microbatch& batch = *context.batch;
  const auto whole = gather_rows(tp, logits.detach(), batch.tokens());
  const auto known = (logits.is_meta() ? whole : on_host(whole, "logits of answers")).to(at::kDouble).contiguous();
  const auto gradient = at::zeros_like(known);
  if (!logits.is_meta()) {
    const LossTerm here = answers(batch, known, gradient);
    context.loss.sum += here.sum;
    context.loss.weight += here.weight;
  }
  if (context.mode != Mode::train) return {};
  const auto scaled = (gradient * context.loss_scale).to(logits.scalar_type());
  return scaled_loss(logits, slice_rows(tp, logits.is_meta() ? scaled : on_device(scaled, logits.device())), context);
}

at::Tensor whole_logits(const TensorParallel& tp, const at::Tensor& logits, int64_t count) {
  const at::NoGradGuard no_grad;
  const auto whole = gather_rows(tp, logits.detach(), count);
  return whole.to(wide_type(whole));
}

}  // namespace shardline
