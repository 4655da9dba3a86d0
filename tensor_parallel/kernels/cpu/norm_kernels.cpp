#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/model/announced_op.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

// X: number type of the residual stream, W: of the layer.
template <class W, class X>
struct NormForward {
  const X* x;
  const W *weight, *bias;
  W* y;
  Wide<X>*mean, *rstd;
  int64_t n;
  Wide<X> epsilon;
};

template <class W, class X>
SHARDLINE_INLINE void norm_rows(const NormForward<W, X>& a, int64_t begin, int64_t end) {
  using T = Wide<X>;
  const int64_t n = a.n;
  const W *weight = a.weight, *bias = a.bias;
  for (int64_t row = begin; row < end; ++row) {
    const X* x = a.x + row * n;
    W* y = a.y + row * n;
    const T mean = ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return widen(x[i]); }) / T(n);
    const T square =
        ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return (widen(x[i]) - mean) * (widen(x[i]) - mean); });
    const T rstd = T(1) / std::sqrt(square / T(n) + a.epsilon);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = narrow<W>((widen(x[i]) - mean) * rstd * widen(weight[i]) + widen(bias[i]));
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}

template <class W, class X>
struct NormBackward {
  const W* dy;
  const X* x;
  const Wide<X>*mean, *rstd;
  const W* weight;
  X* dx;
  Wide<X>*weight_part, *bias_part;  // [n] for one block of rows; null: not needed
  int64_t n, valid_rows;
};

template <class W, class X>
SHARDLINE_INLINE void norm_gradient_rows(const NormBackward<W, X>& a, int64_t begin, int64_t end) {
  using T = Wide<X>;
  const int64_t n = a.n;
  const W* weight = a.weight;
  T *weight_part = a.weight_part, *bias_part = a.bias_part;
  for (int64_t row = begin; row < end; ++row) {
    const W* dy = a.dy + row * n;
    const X* x = a.x + row * n;
    X* dx = a.dx + row * n;
    const T mean = a.mean[row], rstd = a.rstd[row];
    const auto slope = [=](int64_t i) SHARDLINE_INLINED { return widen(dy[i]) * widen(weight[i]); };
    const T average = ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return slope(i); }) / T(n);
    const T along =
        ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return slope(i) * ((widen(x[i]) - mean) * rstd); }) / T(n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      dx[i] = narrow<X>((slope(i) - average - (widen(x[i]) - mean) * rstd * along) * rstd);
    if (row >= a.valid_rows) continue;
    if (weight_part != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) weight_part[i] += widen(dy[i]) * ((widen(x[i]) - mean) * rstd);
    }
    if (bias_part != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) bias_part[i] += widen(dy[i]);
    }
  }
}

#define DEFINE_NORM(W, X)                                                                            \
  SHARDLINE_VECTORISED void norm(const NormForward<W, X>& a, int64_t begin, int64_t end) {           \
    norm_rows(a, begin, end);                                                                        \
  }                                                                                                  \
  SHARDLINE_VECTORISED void norm_gradient(const NormBackward<W, X>& a, int64_t begin, int64_t end) { \
    norm_gradient_rows(a, begin, end);                                                               \
  }
SHARDLINE_FOR_TYPE_PAIRS(DEFINE_NORM)

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon) {
  SL_ANNOUNCE_OP("shardline::layer_norm_forward", x);
  if (!runs_loops(x)) return kernels_for(x).layer_norm_forward(x, weight, bias, epsilon);
  const int64_t rows = x.size(0), n = x.size(1);
  const at::Tensor y = at::empty({rows, n}, weight.options());
  const at::Tensor mean = at::empty({rows}, x.options().dtype(wide_type(x))), rstd = at::empty_like(mean);
  if (x.is_meta()) return {y, mean, rstd};
  with_types_of(weight.scalar_type(), x.scalar_type(), [&]<class W, class X>(W, X) {
    using T = Wide<X>;
    const T small = epsilon;
    const NormForward<W, X> a{constant_numbers<X>(x),
                              constant_numbers<W>(weight),
                              constant_numbers<W>(bias),
                              numbers<W>(y),
                              numbers<T>(mean),
                              numbers<T>(rstd),
                              n,
                              small};
    at::parallel_for(0, rows, rows_per_thread(n), [&](int64_t begin, int64_t end) { norm(a, begin, end); });
  });
  return {y, mean, rstd};
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows) {
  SL_ANNOUNCE_OP("shardline::layer_norm_backward", dy);
  if (!runs_loops(x))
    return kernels_for(x).layer_norm_backward(dy, x, mean, rstd, weight, weight_grad, bias_grad, valid_rows);
  const int64_t n = x.size(1);
  const RowBlocks blocks(x.size(0));
  const at::Tensor dx = at::empty_like(x);
  if (x.is_meta()) return dx;
  const auto parts_of = [&](const at::Tensor& total) {
    return total.defined() ? at::zeros({blocks.count, n}, x.options().dtype(wide_type(x))) : at::Tensor();
  };
  const at::Tensor weight_parts = parts_of(weight_grad), bias_parts = parts_of(bias_grad);
  with_types_of(weight.scalar_type(), x.scalar_type(), [&]<class W, class X>(W, X) {
    using T = Wide<X>;
    const NormBackward<W, X> all{constant_numbers<W>(dy),
                                 constant_numbers<X>(x),
                                 constant_numbers<T>(mean),
                                 constant_numbers<T>(rstd),
                                 constant_numbers<W>(weight),
                                 numbers<X>(dx),
                                 numbers<T>(weight_parts),
                                 numbers<T>(bias_parts),
                                 n,
                                 valid_rows};
    at::parallel_for(0, blocks.count, blocks.per_thread(n), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        NormBackward<W, X> a = all;
        if (a.weight_part != nullptr) a.weight_part += b * n;
        if (a.bias_part != nullptr) a.bias_part += b * n;
        norm_gradient(a, blocks.begin(b), blocks.end(b));
      }
    });
  });
  if (weight_grad.defined()) add_partial_sums(weight_grad, weight_parts);
  if (bias_grad.defined()) add_partial_sums(bias_grad, bias_parts);
  return dx;
}

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  SL_ANNOUNCE_OP("shardline::rms_norm_forward", x);
  return kernels_for(x).rms_norm_forward(x, weight, epsilon);
}

at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                             const at::Tensor& weight, at::Tensor weight_grad, int64_t valid_rows) {
  SL_ANNOUNCE_OP("shardline::rms_norm_backward", dy);
  return kernels_for(x).rms_norm_backward(dy, x, rstd, weight, weight_grad, valid_rows);
}

}  // namespace shardline
