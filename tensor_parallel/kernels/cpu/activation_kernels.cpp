#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <map>

#include "core/error.h"
#include "core/model/announced_op.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

// The probability by which the tanh form of GELU multiplies u, and its derivative: (1 + tanh(z)) / 2 = logistic(2 z).
template <class T>
struct Gate {
  T value, slope;
};
template <class T>
SHARDLINE_INLINE Gate<T> tanh_gate(T u) {
  constexpr T kTwiceRoot = T(1.59576912160573071176), kCubic = T(0.044715);  // 2 sqrt(2 / pi)
  const T square = u * u;
  const T value = logistic(kTwiceRoot * u * (1 + kCubic * square));
  return {value, value * (1 - value) * kTwiceRoot * (1 + 3 * kCubic * square)};
}

template <Activation activation, class T>
SHARDLINE_INLINE T value_at(T u) {
  if constexpr (activation == Activation::gelu) return u * standard_normal(u).below;
  if constexpr (activation == Activation::gelu_tanh) return u * tanh_gate(u).value;
  if constexpr (activation == Activation::relu) return u < 0 ? T(0) : u;
  if constexpr (activation == Activation::silu) return u * logistic(u);
  if constexpr (activation == Activation::tanh) return hyperbolic_tangent(u);
}

template <Activation activation, class T>
SHARDLINE_INLINE T slope_at(T u) {
  if constexpr (activation == Activation::gelu) {
    const Normal<T> normal = standard_normal(u);
    return normal.below + u * normal.density;
  }
  if constexpr (activation == Activation::gelu_tanh) {
    const Gate<T> gate = tanh_gate(u);
    return gate.value + u * gate.slope;
  }
  if constexpr (activation == Activation::relu) return u > 0 ? T(1) : T(0);
  if constexpr (activation == Activation::silu) {
    const T s = logistic(u);
    return s * (1 + u * (1 - s));
  }
  if constexpr (activation == Activation::tanh) {
    const T t = hyperbolic_tangent(u);
    return 1 - t * t;
  }
}

template <class S>
struct Rows {
  const S *dy, *x, *bias;  // dy in the backward pass only
  S* result;
  Wide<S>* bias_part;  // [n] for one block of rows; null: not needed
  int64_t n;
};

template <Activation activation, class S>
SHARDLINE_INLINE void forward_rows(const Rows<S>& a, int64_t begin, int64_t end) {
  const int64_t n = a.n;
  const S* bias = a.bias;
  for (int64_t row = begin; row < end; ++row) {
    const S* x = a.x + row * n;
    S* y = a.result + row * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = narrow<S>(value_at<activation>(widen(x[i]) + widen(bias[i])));
  }
}

template <Activation activation, class S>
SHARDLINE_INLINE void backward_rows(const Rows<S>& a, int64_t begin, int64_t end) {
  const int64_t n = a.n;
  const S* bias = a.bias;
  Wide<S>* part = a.bias_part;
  for (int64_t row = begin; row < end; ++row) {
    const S *dy = a.dy + row * n, *x = a.x + row * n;
    S* dx = a.result + row * n;
    const auto gradient = [=](int64_t i) SHARDLINE_INLINED {
      return widen(dy[i]) * slope_at<activation>(widen(x[i]) + widen(bias[i]));
    };
    if (part == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) dx[i] = narrow<S>(gradient(i));
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const Wide<S> exact = gradient(i);
        dx[i] = narrow<S>(exact);
        part[i] += exact;
      }
    }
  }
}

template <class S>
SHARDLINE_INLINE void forward_with(Activation activation, const Rows<S>& a, int64_t begin, int64_t end) {
  switch (activation) {
    case Activation::gelu:
      return forward_rows<Activation::gelu>(a, begin, end);
    case Activation::gelu_tanh:
      return forward_rows<Activation::gelu_tanh>(a, begin, end);
    case Activation::relu:
      return forward_rows<Activation::relu>(a, begin, end);
    case Activation::silu:
      return forward_rows<Activation::silu>(a, begin, end);
    case Activation::tanh:
      return forward_rows<Activation::tanh>(a, begin, end);
  }
}
template <class S>
SHARDLINE_INLINE void backward_with(Activation activation, const Rows<S>& a, int64_t begin, int64_t end) {
  switch (activation) {
    case Activation::gelu:
      return backward_rows<Activation::gelu>(a, begin, end);
    case Activation::gelu_tanh:
      return backward_rows<Activation::gelu_tanh>(a, begin, end);
    case Activation::relu:
      return backward_rows<Activation::relu>(a, begin, end);
    case Activation::silu:
      return backward_rows<Activation::silu>(a, begin, end);
    case Activation::tanh:
      return backward_rows<Activation::tanh>(a, begin, end);
  }
}
#define DEFINE_ACTIVATIONS(S)                                                                               \
  SHARDLINE_VECTORISED void forward(Activation activation, const Rows<S>& a, int64_t begin, int64_t end) {  \
    forward_with(activation, a, begin, end);                                                                \
  }                                                                                                         \
  SHARDLINE_VECTORISED void backward(Activation activation, const Rows<S>& a, int64_t begin, int64_t end) { \
    backward_with(activation, a, begin, end);                                                               \
  }
SHARDLINE_FOR_TYPES(DEFINE_ACTIVATIONS)

at::Tensor bias_or_zeros(const at::Tensor& bias, const at::Tensor& x) {
  return bias.defined() ? bias : at::zeros({x.size(1)}, x.options());
}

}  // namespace

Activation activation_from_name(const std::string& name) {
  static const std::map<std::string, Activation> kNames = {{"gelu", Activation::gelu},
                                                           {"gelu_new", Activation::gelu_tanh},
                                                           {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                           {"gelu_fast", Activation::gelu_tanh},
                                                           {"relu", Activation::relu},
                                                           {"silu", Activation::silu},
                                                           {"swish", Activation::silu},
                                                           {"tanh", Activation::tanh}};
  const auto found = kNames.find(name);
  if (found != kNames.end()) return found->second;
  std::string known;
  for (const auto& entry : kNames) known += (known.empty() ? "" : ", ") + entry.first;
  throw ConfigError(cat("\"", name, "\" is not one of the activations ", known));
}

at::Tensor bias_activation_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  SL_ANNOUNCE_OP("shardline::bias_activation_forward", x);
  if (!runs_loops(x)) return kernels_for(x).bias_activation_forward(x, bias, activation);
  const int64_t n = x.size(1);
  const at::Tensor y = at::empty_like(x);
  if (x.is_meta()) return y;
  const at::Tensor added = bias_or_zeros(bias, x);
  with_type_of(x, [&]<class S>(S) {
    const Rows<S> a{nullptr, constant_numbers<S>(x), constant_numbers<S>(added), numbers<S>(y), nullptr, n};
    at::parallel_for(0, x.size(0), rows_per_thread(n),
                     [&](int64_t begin, int64_t end) { forward(activation, a, begin, end); });
  });
  return y;
}

at::Tensor bias_activation_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                    Activation activation, at::Tensor bias_grad) {
  SL_ANNOUNCE_OP("shardline::bias_activation_backward", dy);
  if (!runs_loops(x)) return kernels_for(x).bias_activation_backward(dy, x, bias, activation, bias_grad);
  const int64_t n = x.size(1);
  const RowBlocks blocks(x.size(0));
  const at::Tensor dx = at::empty_like(x);
  if (x.is_meta()) return dx;
  const at::Tensor added = bias_or_zeros(bias, x);
  const at::Tensor parts =
      bias_grad.defined() ? at::zeros({blocks.count, n}, x.options().dtype(wide_type(x))) : at::Tensor();
  with_type_of(x, [&]<class S>(S) {
    const Rows<S> all{constant_numbers<S>(dy), constant_numbers<S>(x),  constant_numbers<S>(added),
                      numbers<S>(dx),          numbers<Wide<S>>(parts), n};
    at::parallel_for(0, blocks.count, blocks.per_thread(n), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        Rows<S> a = all;
        if (a.bias_part != nullptr) a.bias_part += b * n;
        backward(activation, a, blocks.begin(b), blocks.end(b));
      }
    });
  });
  if (bias_grad.defined()) add_partial_sums(bias_grad, parts);
  return dx;
}

}  // namespace shardline
