#include "tensor_parallel/kernels/aten/aten_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <limits>
#include <string_view>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline::aten {
namespace {

// Adds in the wide type, so that a half-precision sum is not rounded.
at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias) {
  const at::Tensor exact = x.to(wide_type(x));
  return bias.defined() ? exact + bias : exact;
}

// The type in which torch's layer norm runs: accelerators keep fp32 statistics for half-precision tensors, which must
// all have the same type.
at::ScalarType norm_type(const at::Tensor& x, const at::Tensor& weight) {
  return is_accelerator(x) && x.scalar_type() == weight.scalar_type() ? x.scalar_type() : wide_type(x);
}

std::string_view gelu_form(Activation activation) {
  return activation == Activation::gelu_tanh ? "tanh" : "none";
}

}  // namespace

void add_column_sums(at::Tensor total, const at::Tensor& gradient) {
  if (total.defined()) total.add_(gradient.sum(at::IntArrayRef{0}, false, wide_type(gradient)));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon) {
  const int64_t rows = x.size(0);
  if (rows == 0) {
    const at::Tensor none = at::empty({0}, x.options().dtype(wide_type(x)));
    return {at::empty_like(x, weight.options()), none, none.clone()};
  }
  const at::ScalarType type = norm_type(x, weight);
  auto [y, mean, rstd] = at::native_layer_norm(x.to(type), {x.size(1)}, weight.to(type), bias.to(type), epsilon);
  return {y.to(weight.scalar_type()), mean.reshape({rows}).to(wide_type(x)), rstd.reshape({rows}).to(wide_type(x))};
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows) {
  if (x.size(0) == 0) return at::empty_like(x);
  const at::Tensor row_mean = mean.unsqueeze(1), row_rstd = rstd.unsqueeze(1);
  if (weight_grad.defined()) {
    const at::Tensor normed = (x - row_mean) * row_rstd;  // in fp32, like its operands
    add_column_sums(weight_grad, (dy * normed).narrow(0, 0, valid_rows));
  }
  add_column_sums(bias_grad, dy.narrow(0, 0, valid_rows));
  const at::ScalarType type = norm_type(x, weight);
  const at::Tensor scale = weight.to(type);
  return std::get<0>(at::native_layer_norm_backward(dy.to(type), x.to(type), {x.size(1)}, row_mean, row_rstd, scale,
                                                    scale, std::array<bool, 3>{true, false, false}))
      .to(x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  const at::Tensor exact = x.to(wide_type(x));
  const at::Tensor rstd = exact.square().mean(at::IntArrayRef{1}).add_(epsilon).rsqrt_();
  return {(exact * rstd.unsqueeze(1) * weight).to(weight.scalar_type()), rstd};
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                             const at::Tensor& weight, at::Tensor weight_grad, int64_t valid_rows) {
  const at::Tensor scale = rstd.unsqueeze(1);  // at least fp32, and so is every product with it
  const at::Tensor normed = x * scale, scaled = dy.to(wide_type(dy)) * weight;
  if (weight_grad.defined()) add_column_sums(weight_grad, (dy * normed).narrow(0, 0, valid_rows));
  const at::Tensor along = (scaled * normed).mean(at::IntArrayRef{1}, true);
  return ((scaled - normed * along) * scale).to(x.scalar_type());
}

at::Tensor bias_activation_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  const at::Tensor u = with_bias(x, bias);
  const auto value = [&] {
    switch (activation) {
      case Activation::gelu:
      case Activation::gelu_tanh:
        return at::gelu(u, gelu_form(activation));
      case Activation::relu:
        return at::relu(u);
      case Activation::silu:
        return at::silu(u);
      case Activation::tanh:
        return at::tanh(u);
    }
    SL_ASSERT(false, "activation ", static_cast<int>(activation));
  };
  return value().to(x.scalar_type());
}

at::Tensor bias_activation_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                    Activation activation, at::Tensor bias_grad) {
  const at::Tensor u = with_bias(x, bias), d = dy.to(u.scalar_type());
  at::Tensor dx;
  switch (activation) {
    case Activation::gelu:
    case Activation::gelu_tanh:
      dx = at::gelu_backward(d, u, gelu_form(activation));
      break;
    case Activation::relu:
      dx = at::where(u > 0, d, at::zeros({}, d.options()));
      break;
    case Activation::silu: {
      const at::Tensor s = at::sigmoid(u);
      dx = d * s * (1 + u * (1 - s));
      break;
    }
    case Activation::tanh: {
      const at::Tensor t = at::tanh(u);
      dx = d * (1 - t * t);
      break;
    }
  }
  add_column_sums(bias_grad, dx);
  return dx.to(x.scalar_type());
}

void rotate_pairs_(at::Tensor x, const at::Tensor& table, const at::Tensor& position, bool back) {
  const int64_t pairs = table.size(2);
  const at::Tensor here = table.index_select(1, position).unsqueeze(2);  // [2, rows, 1, pairs]
  const at::Tensor cosine = here[0], sine = back ? -here[1] : here[1];
  const at::Tensor points = x.narrow(2, 0, 2 * pairs).view({x.size(0), x.size(1), pairs, 2});
  const at::Tensor a = points.select(3, 0).to(wide_type(x)), b = points.select(3, 1).to(wide_type(x));
  const at::Tensor turned = a * cosine - b * sine;
  points.select(3, 1).copy_(b * cosine + a * sine);
  points.select(3, 0).copy_(turned);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label) {
  const int64_t rows = logits.size(0), v = logits.size(1);
  const at::TensorOptions options = logits.options().dtype(wide_type(logits));
  if (v == 0) {
    const at::Tensor zero = at::zeros({rows}, options);
    return {zero - std::numeric_limits<double>::infinity(), zero, zero.clone()};
  }
  const at::Tensor exact = logits.to(wide_type(logits));
  const at::Tensor largest = exact.amax({1});
  const at::Tensor shift = at::where(largest.isneginf(), at::zeros({}, options), largest);  // for empty parts
  const at::Tensor sum = (exact - shift.unsqueeze(1)).exp_().sum(1);
  const at::Tensor here = (label >= 0).logical_and(label < v);
  const at::Tensor picked = exact.gather(1, label.clamp(0, v - 1).unsqueeze(1)).squeeze(1);
  return {largest, sum, at::where(here, picked, at::zeros({}, options))};
}

void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale) {
  const int64_t v = logits.size(1);
  if (logits.numel() == 0) return;
  at::Tensor gradient = (logits - log_sum_exp.unsqueeze(1)).exp_();
  const at::Tensor column = at::arange(v, label.options());
  gradient.sub_(column.unsqueeze(0).eq(label.unsqueeze(1)).to(gradient.scalar_type()));
  gradient.mul_(scale.unsqueeze(1)).masked_fill_(scale.eq(0).unsqueeze(1), 0);
  logits.copy_(gradient);
}

}  // namespace shardline::aten
