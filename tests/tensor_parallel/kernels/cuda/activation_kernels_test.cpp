#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::activation_kernels_test {
namespace {

using namespace testing;
using cuda::ActivationKind;

constexpr ActivationKind kKinds[] = {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu,
                                     ActivationKind::silu, ActivationKind::tanh};

double value_at(ActivationKind kind, double u) {
  switch (kind) {
    case ActivationKind::gelu:
      return u * 0.5 * std::erfc(-u / std::sqrt(2.0));
    case ActivationKind::gelu_tanh:
      return 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
    case ActivationKind::relu:
      return std::max(u, 0.0);
    case ActivationKind::silu:
      return u / (1 + std::exp(-u));
    case ActivationKind::tanh:
      return std::tanh(u);
  }
  return NAN;
}

// A five-point formula, with an error of order h^4 where the function is smooth.
double slope_at(ActivationKind kind, double u) {
  if (kind == ActivationKind::relu) return u > 0;
  const double h = 1e-3;
  const auto f = [&](double v) { return value_at(kind, v); };
  return (f(u - 2 * h) - 8 * f(u - h) + 8 * f(u + h) - f(u + 2 * h)) / (12 * h);
}

void check(ActivationKind kind, Number type, int64_t rows, int64_t n, bool with_bias) {
  CAPTURE(static_cast<int>(kind), static_cast<int>(type), rows, n, with_bias);
  const Array x = Array::random(type, rows * n, 1, 3), bias = Array::random(type, n, 2),
              dy = Array::random(type, rows * n, 3);
  std::vector<double> y(rows * n), dx(rows * n), bias_sums(n, -1);
  for (int64_t i = 0; i < rows * n; ++i) {
    const double u = x[i] + (with_bias ? bias[i % n] : 0);
    y[i] = value_at(kind, u);
    dx[i] = dy[i] * slope_at(kind, u);
    bias_sums[i % n] += dx[i];
  }
  Array result(type, rows * n), gradient(type, rows * n), bias_grad(Number::fp32, n, -1),
      parts(Number::fp32, cuda::part_floats(rows, n));
  const void* added = with_bias ? bias.data() : nullptr;
  cuda::bias_activation({.x = x.data(), .bias = added, .y = result.data(), .rows = rows, .n = n, .kind = kind}, type,
                        nullptr);
  check_close(result, y, 5);
  cuda::bias_activation_backward({.dy = dy.data(),
                                  .x = x.data(),
                                  .bias = added,
                                  .dx = gradient.data(),
                                  .bias_grad = with_bias ? bias_grad.floats() : nullptr,
                                  .parts = parts.floats(),
                                  .rows = rows,
                                  .n = n,
                                  .kind = kind},
                                 type, nullptr);
  check_close(gradient, dx, 10);
  if (with_bias) check_close(bias_grad, bias_sums, 10 * std::sqrt(rows));
}

}  // namespace

TEST_CASE("kernels of activations equal float64 in both orders of threads") {
  in_both_orders([] {
    for (const ActivationKind kind : kKinds)
      for (const Number type : kNumbers) {
        check(kind, type, 1, 1, true);
        check(kind, type, 9, 37, true);
        check(kind, type, 5, 132, false);
        check(kind, type, 3, 1100, true);
      }
    check(ActivationKind::gelu_tanh, Number::bf16, 1030, 4, true);
  });
}

TEST_CASE("kernels of activations have the right limits far from zero") {
  for (const ActivationKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    Array x(Number::fp32, 4), y(Number::fp32, 4), dx(Number::fp32, 4);
    const double far[] = {-100, -30, 30, 100};
    for (int i = 0; i < 4; ++i) x.set(i, far[i]);
    cuda::bias_activation({.x = x.data(), .y = y.data(), .rows = 1, .n = 4, .kind = kind}, Number::fp32, nullptr);
    const Array ones(Number::fp32, 4, 1);
    cuda::bias_activation_backward({.dy = ones.data(), .x = x.data(), .dx = dx.data(), .rows = 1, .n = 4, .kind = kind},
                                   Number::fp32, nullptr);
    const bool bounded = kind == ActivationKind::tanh;
    for (int i = 0; i < 4; ++i) {
      CHECK(y[i] == Approx(far[i] > 0 ? (bounded ? 1 : far[i]) : (bounded ? -1 : 0)).margin(1e-11));
      CHECK(dx[i] == Approx(far[i] > 0 && !bounded ? 1 : 0).margin(1e-10));
    }
  }
}

}  // namespace shardline::activation_kernels_test
