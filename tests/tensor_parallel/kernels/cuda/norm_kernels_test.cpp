#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::norm_kernels_test {
namespace {

using namespace testing;

constexpr double kEpsilon = 1e-5;

struct Shape {
  int64_t rows, n, valid_rows;
};
// One row, one column, columns that cannot be read four at a time, one to four groups of columns per thread, more rows
// than blocks.
constexpr Shape kShapes[] = {{1, 1, 1},    {3, 5, 2},    {1, 64, 1},     {4, 257, 0},    {5, 100, 5},
                             {2, 4100, 1}, {2, 8204, 2}, {263, 12, 260}, {1030, 4, 1029}};

struct Reference {
  std::vector<double> y, mean, rstd, dx, weight_grad, bias_grad;
};

Reference reference(const Shape& s, const Array& x, const Array& weight, const Array& bias, const Array& dy, bool rms) {
  Reference r;
  r.weight_grad.assign(s.n, 0.25);
  r.bias_grad.assign(s.n, -0.5);
  for (int64_t row = 0; row < s.rows; ++row) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < s.n && !rms; ++i) mean += x[row * s.n + i] / s.n;
    for (int64_t i = 0; i < s.n; ++i) square += std::pow(x[row * s.n + i] - mean, 2);
    const double rstd = 1 / std::sqrt(square / s.n + kEpsilon);
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
    double sum = 0, along = 0;
    for (int64_t i = 0; i < s.n; ++i) {
      const double normed = (x[row * s.n + i] - mean) * rstd, d = dy[row * s.n + i];
      r.y.push_back(normed * weight[i] + (rms ? 0 : bias[i]));
      sum += d * weight[i];
      along += d * weight[i] * normed;
      if (row < s.valid_rows) {
        r.weight_grad[i] += d * normed;
        r.bias_grad[i] += d;
      }
    }
    for (int64_t i = 0; i < s.n; ++i) {
      const double normed = (x[row * s.n + i] - mean) * rstd;
      r.dx.push_back((dy[row * s.n + i] * weight[i] - (rms ? 0 : sum / s.n) - normed * along / s.n) * rstd);
    }
  }
  return r;
}

void check(const Shape& s, Number layer, Number residual, bool rms) {
  CAPTURE(s.rows, s.n, static_cast<int>(layer), static_cast<int>(residual), rms);
  const Array x = Array::random(residual, s.rows * s.n, 1, 2), weight = Array::random(layer, s.n, 2),
              bias = Array::random(layer, s.n, 3), dy = Array::random(layer, s.rows * s.n, 4);
  const Reference expected = reference(s, x, weight, bias, dy, rms);
  Array y(layer, s.rows * s.n), mean(Number::fp32, s.rows), rstd(Number::fp32, s.rows);
  float* means = rms ? nullptr : mean.floats();
  cuda::norm_forward({.x = x.data(),
                      .weight = weight.data(),
                      .bias = rms ? nullptr : bias.data(),
                      .y = y.data(),
                      .mean = means,
                      .rstd = rstd.floats(),
                      .rows = s.rows,
                      .n = s.n,
                      .epsilon = static_cast<float>(kEpsilon)},
                     layer, residual, nullptr);
  // A row of one number, or of small numbers, has a large rstd, which multiplies the error of the mean.
  const double largest = *std::max_element(expected.rstd.begin(), expected.rstd.end());
  check_close(y, expected.y, 8 + 4 * largest);
  if (!rms) check_close(mean, expected.mean, 2);
  check_close(rstd, expected.rstd, largest, 1e-5);

  Array dx(residual, s.rows * s.n), weight_grad(Number::fp32, s.n, 0.25), bias_grad(Number::fp32, s.n, -0.5),
      parts(Number::fp32, 2 * cuda::part_floats(s.rows, s.n));
  cuda::NormBackward a{.dy = dy.data(),
                       .x = x.data(),
                       .mean = means,
                       .rstd = rstd.floats(),
                       .weight = weight.data(),
                       .dx = dx.data(),
                       .weight_grad = weight_grad.floats(),
                       .bias_grad = rms ? nullptr : bias_grad.floats(),
                       .parts = parts.floats(),
                       .rows = s.rows,
                       .n = s.n,
                       .valid_rows = s.valid_rows};
  cuda::norm_backward(a, layer, residual, nullptr);
  check_close(dx, expected.dx, 16 * largest * (1 + largest));
  check_close(weight_grad, expected.weight_grad, 10 * std::sqrt(s.rows));
  if (!rms) check_close(bias_grad, expected.bias_grad, 4 * std::sqrt(s.rows));

  Array alone(residual, s.rows * s.n);
  a.dx = alone.data();
  a.weight_grad = a.bias_grad = nullptr;
  cuda::norm_backward(a, layer, residual, nullptr);
  CHECK(alone.same_bits(dx));
}

}  // namespace

TEST_CASE("kernels of norms equal float64 in both orders of threads") {
  in_both_orders([] {
    for (const Shape& shape : kShapes)
      for (const auto& [layer, residual] : kNumberPairs)
        if (shape.rows * shape.n < 2000 || layer == Number::bf16)
          for (const bool rms : {false, true}) check(shape, layer, residual, rms);
  });
}

TEST_CASE("a norm without rows starts no kernel, and one that is too wide is refused") {
  const cuda::LaunchLog log;
  Array empty(Number::fp32, 0), weight(Number::fp32, 4, 1);
  cuda::norm_forward({.x = empty.data(),
                      .weight = weight.data(),
                      .bias = weight.data(),
                      .y = empty.data(),
                      .mean = empty.floats(),
                      .rstd = empty.floats(),
                      .rows = 0,
                      .n = 4,
                      .epsilon = 1},
                     Number::fp32, Number::fp32, nullptr);
  cuda::NormBackward a{.rows = 0, .n = 4};
  cuda::norm_backward(a, Number::fp32, Number::fp32, nullptr);
  CHECK(log.launches().empty());
  a.n = cuda::kWidestNorm + 1;
  CHECK_THROWS_AS(cuda::norm_backward(a, Number::fp32, Number::fp32, nullptr), std::invalid_argument);
}

}  // namespace shardline::norm_kernels_test
