#include "tensor_parallel/kernels/cuda/cuda_launches.h"
#include "tensor_parallel/kernels/cuda/number_dispatch.h"
#include "tensor_parallel/kernels/cuda/row_blocks.h"

namespace shardline::cuda {
namespace {

constexpr float kTwiceRoot = 1.59576912160573071176f, kCubic = 0.044715f;  // 2 sqrt(2 / pi), and GELU's coefficient
constexpr float kHalfRoot = 0.70710678118654752440f, kDensityAtZero = 0.39894228040143267794f;

SHARDLINE_DEVICE float logistic_of(float u) {
  return 1.0f / (1.0f + expf(-u));
}
// The tanh form of GELU is u times this: (1 + tanh(z)) / 2 = logistic(2 z).
SHARDLINE_DEVICE float gate_of(float u) {
  return logistic_of(kTwiceRoot * u * (1.0f + kCubic * u * u));
}
SHARDLINE_DEVICE float normal_below(float u) {
  return 0.5f * erfcf(-u * kHalfRoot);
}

template <ActivationKind kind>
SHARDLINE_DEVICE float value_of(float u) {
  if constexpr (kind == ActivationKind::gelu) return u * normal_below(u);
  if constexpr (kind == ActivationKind::gelu_tanh) return u * gate_of(u);
  if constexpr (kind == ActivationKind::relu) return u < 0 ? 0.0f : u;
  if constexpr (kind == ActivationKind::silu) return u * logistic_of(u);
  if constexpr (kind == ActivationKind::tanh) return tanhf(u);
}

template <ActivationKind kind>
SHARDLINE_DEVICE float slope_of(float u) {
  if constexpr (kind == ActivationKind::gelu) return normal_below(u) + u * kDensityAtZero * expf(-0.5f * u * u);
  if constexpr (kind == ActivationKind::gelu_tanh) {
    const float gate = gate_of(u);
    return gate + u * gate * (1.0f - gate) * kTwiceRoot * (1.0f + 3.0f * kCubic * u * u);
  }
  if constexpr (kind == ActivationKind::relu) return u > 0 ? 1.0f : 0.0f;
  if constexpr (kind == ActivationKind::silu) {
    const float s = logistic_of(u);
    return s * (1.0f + u * (1.0f - s));
  }
  if constexpr (kind == ActivationKind::tanh) {
    const float t = tanhf(u);
    return 1.0f - t * t;
  }
}

template <ActivationKind kind, int kV, class S>
SHARDLINE_KERNEL(StripCut::kMostThreads, activate, const S* x, const S* bias, S* y, int64_t n, int64_t strips) {
  const int64_t row = block_x() / strips;
  const int64_t column = (block_x() % strips * block_threads() + thread_index()) * kV;
  if (column >= n) return;
  const Pack<S, kV> from = load<kV>(x + row * n + column);
  Pack<S, kV> shift{}, result;
  if (bias != nullptr) shift = load<kV>(bias + column);
  SHARDLINE_UNROLLED
  for (int j = 0; j < kV; ++j)
    result.value[j] = stored<S>(value_of<kind>(number(from.value[j]) + number(shift.value[j])));
  store<kV>(y + row * n + column, result);
}

template <ActivationKind kind, int kV, class S>
SHARDLINE_KERNEL(StripCut::kMostThreads, activation_gradient, const S* dy, const S* x, const S* bias, S* dx,
                 float* parts, int64_t n, RowCut cut) {
  const int64_t column = (block_x() * block_threads() + thread_index()) * kV;
  if (column >= n) return;
  const int64_t first = block_y() * cut.block_rows;
  const int64_t last = first + cut.block_rows < cut.rows ? first + cut.block_rows : cut.rows;
  Pack<S, kV> shift{};
  if (bias != nullptr) shift = load<kV>(bias + column);
  float sum[kV] = {};
  for (int64_t row = first; row < last; ++row) {
    const Pack<S, kV> from = load<kV>(x + row * n + column), gradient = load<kV>(dy + row * n + column);
    Pack<S, kV> result;
    SHARDLINE_UNROLLED
    for (int j = 0; j < kV; ++j) {
      const float exact = number(gradient.value[j]) * slope_of<kind>(number(from.value[j]) + number(shift.value[j]));
      result.value[j] = stored<S>(exact);
      sum[j] += exact;
    }
    store<kV>(dx + row * n + column, result);
  }
  SHARDLINE_UNROLLED
  for (int j = 0; j < kV && parts != nullptr; ++j) parts[block_y() * n + column + j] = sum[j];
}

// Calls run with the kind as a template argument.
template <class Run>
void with_kind(ActivationKind kind, const Run& run) {
  switch (kind) {
    case ActivationKind::gelu:
      return run.template operator()<ActivationKind::gelu>();
    case ActivationKind::gelu_tanh:
      return run.template operator()<ActivationKind::gelu_tanh>();
    case ActivationKind::relu:
      return run.template operator()<ActivationKind::relu>();
    case ActivationKind::silu:
      return run.template operator()<ActivationKind::silu>();
    case ActivationKind::tanh:
      return run.template operator()<ActivationKind::tanh>();
  }
}

}  // namespace

void bias_activation(const BiasActivation& a, Number type, Stream stream) {
  const bool fours = in_fours(a.n, a.x, a.bias, a.y);
  const StripCut strips(fours ? a.n / 4 : a.n);
  const int64_t bytes = a.rows * a.n * bytes_of(type);
  const Launch how{.kernel = "bias_activation",
                   .blocks_x = a.rows * strips.count,
                   .threads = strips.threads,
                   .bytes_read = bytes + (a.bias != nullptr ? a.n * bytes_of(type) : 0),
                   .bytes_written = bytes};
  with_number(type, [&]<class S>(S) {
    with_kind(a.kind, [&]<ActivationKind kind>() {
      const auto start = [&](auto kernel) {
        launch(how, stream, kernel, static_cast<const S*>(a.x), static_cast<const S*>(a.bias), static_cast<S*>(a.y),
               a.n, strips.count);
      };
      fours ? start(activate<kind, 4, S>) : start(activate<kind, 1, S>);
    });
  });
}

void bias_activation_backward(const BiasActivationBackward& a, Number type, Stream stream) {
  if (a.rows == 0 || a.n == 0) return;
  const bool fours = in_fours(a.n, a.dy, a.x, a.bias, a.dx);
  const StripCut strips(fours ? a.n / 4 : a.n);
  const RowCut cut(a.rows);
  float* parts = a.bias_grad != nullptr ? a.parts : nullptr;
  const int64_t bytes = a.rows * a.n * bytes_of(type);
  const Launch how{.kernel = "bias_activation_backward",
                   .blocks_x = strips.count,
                   .blocks_y = cut.blocks,
                   .threads = strips.threads,
                   .bytes_read = 2 * bytes + (a.bias != nullptr ? a.n * bytes_of(type) : 0),
                   .bytes_written = bytes + (parts != nullptr ? cut.blocks * a.n * 4 : 0)};
  with_number(type, [&]<class S>(S) {
    with_kind(a.kind, [&]<ActivationKind kind>() {
      const auto start = [&](auto kernel) {
        launch(how, stream, kernel, static_cast<const S*>(a.dy), static_cast<const S*>(a.x),
               static_cast<const S*>(a.bias), static_cast<S*>(a.dx), parts, a.n, cut);
      };
      fours ? start(activation_gradient<kind, 4, S>) : start(activation_gradient<kind, 1, S>);
    });
  });
  add_part_sums({{a.parts}, {a.bias_grad}, cut.blocks, a.n}, stream);
}

}  // namespace shardline::cuda
