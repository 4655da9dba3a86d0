#include "tensor_parallel/kernels/cuda/cuda_kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/cuda/cuda_attention.h"
#include "tensor_parallel/kernels/cuda/tensor_arguments.h"

namespace shardline::cuda {
namespace {

// Returns room for partial sums per block of rows; empty if none of the gradients that they add up to is needed.
at::Tensor parts_for(const at::Tensor& like, int64_t sums, bool wanted) {
  const int64_t count = wanted ? sums * part_floats(like.size(0), like.size(1)) : 0;
  return at::empty({count}, like.options().dtype(at::kFloat));
}

// Returns room for a per-row statistic that a norm saves.
at::Tensor row_statistics(const at::Tensor& x) {
  return at::empty({x.size(0)}, x.options().dtype(at::kFloat));
}

// For an RMS norm, mean and bias, which it does not have, are undefined. Returns y and rstd, and fills mean.
std::tuple<at::Tensor, at::Tensor> norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                                const at::Tensor& mean, float epsilon) {
  const at::Tensor y = at::empty_like(x, weight.options()), rstd = row_statistics(x);
  norm_forward({.x = read(x),
                .weight = read(weight),
                .bias = read(bias),
                .y = written(y),
                .mean = written_as<float>(mean),
                .rstd = written_as<float>(rstd),
                .rows = x.size(0),
                .n = x.size(1),
                .epsilon = epsilon},
               number_of(weight), number_of(x), current_stream(x));
  return {y, rstd};
}

bool has_norm_backward(const at::Tensor& x) {
  return has_kernels(x) && x.size(1) <= kWidestNorm;
}

// For an RMS norm, mean and bias_grad are undefined.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& rstd,
                         const at::Tensor& weight, at::Tensor weight_grad, at::Tensor bias_grad, int64_t valid_rows) {
  const at::Tensor dx = at::empty_like(x), parts = parts_for(x, 2, weight_grad.defined() || bias_grad.defined());
  norm_backward({.dy = read(dy),
                 .x = read(x),
                 .mean = read_as<float>(mean),
                 .rstd = read_as<float>(rstd),
                 .weight = read(weight),
                 .dx = written(dx),
                 .weight_grad = written_as<float>(weight_grad),
                 .bias_grad = written_as<float>(bias_grad),
                 .parts = written_as<float>(parts),
                 .rows = x.size(0),
                 .n = x.size(1),
                 .valid_rows = valid_rows},
                number_of(weight), number_of(x), current_stream(x));
  return dx;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon) {
  if (!has_kernels(x)) return aten::layer_norm_forward(x, weight, bias, epsilon);
  const at::Tensor mean = row_statistics(x);
  const auto [y, rstd] = norm_forward(x, weight, bias, mean, epsilon);
  return {y, mean, rstd};
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows) {
  if (!has_norm_backward(x))
    return aten::layer_norm_backward(dy, x, mean, rstd, weight, weight_grad, bias_grad, valid_rows);
  return norm_backward(dy, x, mean, rstd, weight, weight_grad, bias_grad, valid_rows);
}

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!has_kernels(x)) return aten::rms_norm_forward(x, weight, epsilon);
  return norm_forward(x, weight, /*bias=*/{}, /*mean=*/{}, epsilon);
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                             const at::Tensor& weight, at::Tensor weight_grad, int64_t valid_rows) {
  if (!has_norm_backward(x)) return aten::rms_norm_backward(dy, x, rstd, weight, weight_grad, valid_rows);
  return norm_backward(dy, x, /*mean=*/{}, rstd, weight, weight_grad, /*bias_grad=*/{}, valid_rows);
}

ActivationKind kind_of(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return ActivationKind::gelu;
    case Activation::gelu_tanh:
      return ActivationKind::gelu_tanh;
    case Activation::relu:
      return ActivationKind::relu;
    case Activation::silu:
      return ActivationKind::silu;
    case Activation::tanh:
      return ActivationKind::tanh;
  }
  SL_ASSERT(false, "activation ", static_cast<int>(activation));
}

at::Tensor bias_activation_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  if (!has_kernels(x)) return aten::bias_activation_forward(x, bias, activation);
  const at::Tensor y = at::empty_like(x);
  bias_activation({.x = read(x),
                   .bias = read(bias),
                   .y = written(y),
                   .rows = x.size(0),
                   .n = x.size(1),
                   .kind = kind_of(activation)},
                  number_of(x), current_stream(x));
  return y;
}

at::Tensor bias_activation_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                    Activation activation, at::Tensor bias_grad) {
  if (!has_kernels(x)) return aten::bias_activation_backward(dy, x, bias, activation, bias_grad);
  const at::Tensor dx = at::empty_like(x), parts = parts_for(x, 1, bias_grad.defined());
  bias_activation_backward({.dy = read(dy),
                            .x = read(x),
                            .bias = read(bias),
                            .dx = written(dx),
                            .bias_grad = written_as<float>(bias_grad),
                            .parts = written_as<float>(parts),
                            .rows = x.size(0),
                            .n = x.size(1),
                            .kind = kind_of(activation)},
                           number_of(x), current_stream(x));
  return dx;
}

RowDropout dropout_of(const DropoutRows& rows) {
  return {.seed = rows.seed,
          .op = rows.op,
          .step = rows.step,
          .probability = rows.probability,
          .samples = read_as<int64_t>(rows.samples),
          .places = read_as<int64_t>(rows.places),
          .first_token = rows.first_token,
          .tokens = rows.tokens};
}

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows) {
  if (!has_kernels(x)) return aten::bias_dropout_add_forward(x, bias, residual, rows);
  const at::Tensor y = at::empty_like(residual.defined() ? residual : x);
  bias_dropout_add({.x = read(x),
                    .bias = read(bias),
                    .residual = read(residual),
                    .y = written(y),
                    .rows = x.size(0),
                    .n = x.size(1),
                    .dropout = dropout_of(rows)},
                   number_of(x), number_of(y), current_stream(x));
  return y;
}

void add_column_sums(at::Tensor total, const at::Tensor& x) {
  if (!has_kernels(x) || x.stride(1) != 1) return aten::add_column_sums(total, x);
  add_column_sums({.x = x.const_data_ptr(),
                   .total = written_as<float>(total),
                   .rows = x.size(0),
                   .n = x.size(1),
                   .row_stride = x.stride(0)},
                  number_of(x), current_stream(x));
}

at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows, at::ScalarType branch) {
  if (!has_kernels(dy)) return aten::bias_dropout_backward(dy, rows, bias_grad, valid_rows, branch);
  if (rows.probability == 0 && branch == dy.scalar_type()) {  // the gradient passes through unchanged
    if (bias_grad.defined()) add_column_sums(bias_grad, dy.narrow(0, 0, valid_rows));
    return dy;
  }
  const at::Tensor dx = at::empty_like(dy, dy.options().dtype(branch)), parts = parts_for(dy, 1, bias_grad.defined());
  bias_dropout_backward({.dy = read(dy),
                         .dx = written(dx),
                         .bias_grad = written_as<float>(bias_grad),
                         .parts = written_as<float>(parts),
                         .rows = dy.size(0),
                         .n = dy.size(1),
                         .valid_rows = valid_rows,
                         .dropout = dropout_of(rows)},
                        number_of(branch), number_of(dy), current_stream(dy));
  return dx;
}

void rotate_pairs_(at::Tensor x, const at::Tensor& table, const at::Tensor& position, bool back) {
  if (!has_kernels(x)) return aten::rotate_pairs_(x, table, position, back);
  SL_ASSERT(x.stride(2) == 1 && x.stride(1) == x.size(2), "heads of a row must be contiguous; strides ", x.strides());
  rotate_pairs({.x = x.mutable_data_ptr(),
                .table = read_as<float>(table),
                .position = read_as<int64_t>(position),
                .rows = x.size(0),
                .heads = x.size(1),
                .head_dim = x.size(2),
                .row_stride = x.stride(0),
                .positions = table.size(1),
                .pairs = table.size(2),
                .back = back},
               number_of(x), current_stream(x));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label) {
  if (!has_kernels(logits)) return aten::cross_entropy_stats(logits, label);
  const at::Tensor largest = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat)),
                   sum = at::empty_like(largest), picked = at::empty_like(largest);
  SL_ASSERT(logits.stride(1) == 1, "strides ", logits.strides());
  cross_entropy_stats({.logits = logits.const_data_ptr(),
                       .label = read_as<int64_t>(label),
                       .largest = written_as<float>(largest),
                       .sum = written_as<float>(sum),
                       .picked = written_as<float>(picked),
                       .rows = logits.size(0),
                       .v = logits.size(1),
                       .row_stride = logits.stride(0)},
                      number_of(logits), current_stream(logits));
  return {largest, sum, picked};
}

void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale) {
  if (!has_kernels(logits)) return aten::cross_entropy_gradient_(logits, label, log_sum_exp, scale);
  SL_ASSERT(logits.stride(1) == 1, "strides ", logits.strides());
  cross_entropy_gradient({.logits = logits.mutable_data_ptr(),
                          .label = read_as<int64_t>(label),
                          .log_sum_exp = read_as<float>(log_sum_exp),
                          .scale = read_as<float>(scale),
                          .rows = logits.size(0),
                          .v = logits.size(1),
                          .row_stride = logits.stride(0)},
                         number_of(logits), current_stream(logits));
}

bool whole_cross_entropy_(at::Tensor logits, const at::Tensor& label, at::Tensor total,
                          std::optional<double> gradient_scale) {
  if (!has_kernels(logits)) return false;
  SL_ASSERT(logits.stride(1) == 1, "strides ", logits.strides());
  const at::Tensor loss = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  const float scale = gradient_scale.value_or(0);
  whole_cross_entropy({.logits = logits.mutable_data_ptr(),
                       .label = read_as<int64_t>(label),
                       .loss = written_as<float>(loss),
                       .total = written_as<double>(total),
                       .scale = scale,
                       .rows = logits.size(0),
                       .v = logits.size(1),
                       .row_stride = logits.stride(0),
                       .with_gradient = gradient_scale.has_value()},
                      number_of(logits), current_stream(logits));
  return true;
}

}  // namespace

const KernelTable& kernel_table() {
  static const KernelTable kTable = {layer_norm_forward,       layer_norm_backward,     rms_norm_forward,
                                     rms_norm_backward,        bias_activation_forward, bias_activation_backward,
                                     bias_dropout_add_forward, bias_dropout_backward,   rotate_pairs_,
                                     cross_entropy_stats,      cross_entropy_gradient_, attention_forward,
                                     attention_backward,       add_column_sums,         whole_cross_entropy_};
  return kTable;
}

}  // namespace shardline::cuda
