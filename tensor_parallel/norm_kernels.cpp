#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/announced_op.h"
#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"
#include "tensor_parallel/row_kernels.h"
#include "tensor_parallel/vector_kernel_math.h"

namespace shardline {
namespace {

template <class T>
struct NormForward {
  const T *x, *weight, *bias;
  T *y, *mean, *rstd;
  int64_t n;
  T epsilon;
};

template <class T>
SHARDLINE_INLINE void norm_rows(const NormForward<T>& a, int64_t begin, int64_t end) {
  const int64_t n = a.n;
  const T *weight = a.weight, *bias = a.bias;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = a.x + row * n;
    T* y = a.y + row * n;
    const T mean = ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return x[i]; }) / T(n);
    const T square = ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return (x[i] - mean) * (x[i] - mean); });
    const T rstd = T(1) / std::sqrt(square / T(n) + a.epsilon);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
}
SHARDLINE_VECTORISED void norm(const NormForward<float>& a, int64_t begin, int64_t end) {
  norm_rows(a, begin, end);
}
SHARDLINE_VECTORISED void norm(const NormForward<double>& a, int64_t begin, int64_t end) {
  norm_rows(a, begin, end);
}

template <class T>
struct NormBackward {
  const T *dy, *x, *mean, *rstd, *weight;
  T *dx, *weight_part, *bias_part;  // the parts [n] are of one block of rows; null: not wanted
  int64_t n, valid_rows;
};

template <class T>
SHARDLINE_INLINE void norm_gradient_rows(const NormBackward<T>& a, int64_t begin, int64_t end) {
  const int64_t n = a.n;
  const T* weight = a.weight;
  T *weight_part = a.weight_part, *bias_part = a.bias_part;
  for (int64_t row = begin; row < end; ++row) {
    const T *dy = a.dy + row * n, *x = a.x + row * n;
    T* dx = a.dx + row * n;
    const T mean = a.mean[row], rstd = a.rstd[row];
    const T average = ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return dy[i] * weight[i]; }) / T(n);
    const T along =
        ordered_sum<T>(n, [=](int64_t i) SHARDLINE_INLINED { return dy[i] * weight[i] * ((x[i] - mean) * rstd); }) /
        T(n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = (dy[i] * weight[i] - average - (x[i] - mean) * rstd * along) * rstd;
    if (row >= a.valid_rows) continue;
    if (weight_part != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) weight_part[i] += dy[i] * ((x[i] - mean) * rstd);
    }
    if (bias_part != nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) bias_part[i] += dy[i];
    }
  }
}
SHARDLINE_VECTORISED void norm_gradient(const NormBackward<float>& a, int64_t begin, int64_t end) {
  norm_gradient_rows(a, begin, end);
}
SHARDLINE_VECTORISED void norm_gradient(const NormBackward<double>& a, int64_t begin, int64_t end) {
  norm_gradient_rows(a, begin, end);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon) {
  SL_ANNOUNCE_OP("shardline::layer_norm_forward", x);
  if (!runs_loops(x)) return aten::layer_norm_forward(x, weight, bias, epsilon);
  const int64_t rows = x.size(0), n = x.size(1);
  const at::Tensor y = at::empty_like(x), mean = at::empty({rows}, x.options()), rstd = at::empty_like(mean);
  with_type_of(x, [&]<class T>(T) {
    const NormForward<T> a{constant_numbers<T>(x),
                           constant_numbers<T>(weight),
                           constant_numbers<T>(bias),
                           numbers<T>(y),
                           numbers<T>(mean),
                           numbers<T>(rstd),
                           n,
                           static_cast<T>(epsilon)};
    at::parallel_for(0, rows, rows_per_thread(n), [&](int64_t begin, int64_t end) { norm(a, begin, end); });
  });
  return {y, mean, rstd};
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows) {
  SL_ANNOUNCE_OP("shardline::layer_norm_backward", dy);
  if (!runs_loops(x)) return aten::layer_norm_backward(dy, x, mean, rstd, weight, weight_grad, bias_grad, valid_rows);
  const int64_t n = x.size(1);
  const RowBlocks blocks(x.size(0));
  const at::Tensor dx = at::empty_like(x);
  const auto parts_of = [&](const at::Tensor& total) {
    return total.defined() ? at::zeros({blocks.count, n}, x.options()) : at::Tensor();
  };
  const at::Tensor weight_parts = parts_of(weight_grad), bias_parts = parts_of(bias_grad);
  with_type_of(x, [&]<class T>(T) {
    const NormBackward<T> all{constant_numbers<T>(dy),
                              constant_numbers<T>(x),
                              constant_numbers<T>(mean),
                              constant_numbers<T>(rstd),
                              constant_numbers<T>(weight),
                              numbers<T>(dx),
                              numbers<T>(weight_parts),
                              numbers<T>(bias_parts),
                              n,
                              valid_rows};
    at::parallel_for(0, blocks.count, blocks.per_thread(n), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        NormBackward<T> a = all;
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

}  // namespace shardline
