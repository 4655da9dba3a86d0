#include "core/numbers/philox.h"
#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::dropout_kernels_test {
namespace {

using namespace testing;

constexpr uint64_t kSeed = 0x123456789abcdef;
constexpr uint32_t kOp = 13, kStep = 70001;

struct Case {
  int64_t rows, n, valid_rows;
  double probability;
  std::vector<int64_t> samples, places;  // [tokens]
  int64_t first_token;

  int64_t tokens() const { return std::ssize(samples); }
};

// Samples of one length, all from the same position on.
Case of_one_length(int64_t rows, int64_t n, int64_t valid_rows, double probability, const std::vector<int64_t>& samples,
                   int64_t length, int64_t first_place, int64_t first_token) {
  Case made{rows, n, valid_rows, probability, {}, {}, first_token};
  for (const int64_t sample : samples)
    for (int64_t i = 0; i < length; ++i) {
      made.samples.push_back(sample);
      made.places.push_back(first_place + i);
    }
  return made;
}

// One element, columns that cannot be read four at a time, padding, a rank's rows from the middle of a sample, more
// columns than threads, nothing dropped and everything dropped, more rows than blocks, a border without tokens, samples
// of several lengths.
const std::vector<Case> kCases = {of_one_length(1, 1, 1, 0.5, {0}, 1, 0, 0),
                                  of_one_length(3, 7, 2, 0.1, {4, 9}, 1, 6, 0),
                                  of_one_length(5, 8, 4, 0.25, {7, 4, 5}, 3, 1000, 2),
                                  of_one_length(4, 260, 0, 0.1, {9, 11}, 3, 3, 0),
                                  of_one_length(2, 1028, 2, 0.9, {2}, 8, 0, 5),
                                  of_one_length(6, 12, 6, 0, {}, 0, 0, 0),
                                  of_one_length(6, 12, 6, 1, {1}, 6, 0, 0),
                                  of_one_length(1025, 4, 1024, 0.1, {3}, 1024, 0, 0),
                                  of_one_length(2, 4, 0, 0.5, {}, 0, 0, 0),
                                  {5, 8, 5, 0.5, {2, 2, 2, 6, 5, 5, 5, 5, 5}, {0, 1, 2, 0, 0, 1, 2, 0, 1}, 2}};

// 1 where the CPU keeps the element or nothing is dropped.
std::vector<uint8_t> kept(const Case& c) {
  std::vector<uint8_t> keep(c.rows * c.n, 1);
  for (int64_t row = 0; row < c.rows && c.first_token + row < c.tokens(); ++row) {
    const int64_t token = c.first_token + row;
    random_keep({kSeed, kOp, kStep, static_cast<uint32_t>(c.samples[token])}, c.places[token] * c.n, c.n,
                1 - c.probability, keep.data() + row * c.n);
  }
  return keep;
}

std::vector<double> factors(const Case& c) {
  std::vector<double> factor(c.rows * c.n, 1);
  const auto keep = kept(c);
  for (int64_t i = 0; i < c.rows * c.n && c.first_token + i / c.n < c.tokens(); ++i)
    factor[i] = keep[i] && c.probability < 1 ? 1 / (1 - c.probability) : 0;
  return factor;
}

cuda::RowDropout dropout_of(const Case& c) {
  return {kSeed, kOp, kStep, c.probability, c.samples.data(), c.places.data(), c.first_token, c.tokens()};
}

void check(const Case& c, Number layer, Number residual, bool with_bias, bool with_residual) {
  CAPTURE(c.rows, c.n, c.probability, static_cast<int>(layer), static_cast<int>(residual), with_bias, with_residual);
  const Array x = Array::random(layer, c.rows * c.n, 1), bias = Array::random(layer, c.n, 2),
              other = Array::random(residual, c.rows * c.n, 3), dy = Array::random(residual, c.rows * c.n, 4);
  const auto factor = factors(c);
  std::vector<double> y(c.rows * c.n), dx(c.rows * c.n), bias_sums(c.n, 0.75);
  for (int64_t i = 0; i < c.rows * c.n; ++i) {
    y[i] = (with_residual ? other[i] : 0) + (x[i] + (with_bias ? bias[i % c.n] : 0)) * factor[i];
    dx[i] = dy[i] * factor[i];
    if (i / c.n < c.valid_rows) bias_sums[i % c.n] += dx[i];
  }
  Array result(residual, c.rows * c.n);
  cuda::bias_dropout_add({.x = x.data(),
                          .bias = with_bias ? bias.data() : nullptr,
                          .residual = with_residual ? other.data() : nullptr,
                          .y = result.data(),
                          .rows = c.rows,
                          .n = c.n,
                          .dropout = dropout_of(c)},
                         layer, residual, nullptr);
  check_close(result, y, 40);
  Array gradient(layer, c.rows * c.n), bias_grad(Number::fp32, c.n, 0.75),
      parts(Number::fp32, cuda::part_floats(c.rows, c.n));
  cuda::bias_dropout_backward({.dy = dy.data(),
                               .dx = gradient.data(),
                               .bias_grad = with_bias ? bias_grad.floats() : nullptr,
                               .parts = parts.floats(),
                               .rows = c.rows,
                               .n = c.n,
                               .valid_rows = c.valid_rows,
                               .dropout = dropout_of(c)},
                              layer, residual, nullptr);
  check_close(gradient, dx, 5);
  if (with_bias) check_close(bias_grad, bias_sums, 10 * std::sqrt(c.rows));
}

}  // namespace

TEST_CASE("kernels of dropout equal float64 in both orders of threads") {
  in_both_orders([] {
    for (const Case& c : kCases)
      for (const auto& [layer, residual] : kNumberPairs)
        for (const bool with_bias : {false, true}) check(c, layer, residual, with_bias, layer != residual || with_bias);
  });
}

TEST_CASE("a mask that is shifted by one element is detected") {
  const Case right = of_one_length(300, 1, 300, 0.5, {3}, 300, 0, 0);
  const Case off = of_one_length(300, 1, 300, 0.5, {3}, 300, 1, 0);
  const Array ones(Number::fp32, off.rows, 1);
  Array forward(Number::fp32, off.rows);
  cuda::bias_dropout_add({.x = ones.data(), .y = forward.data(), .rows = off.rows, .n = 1, .dropout = dropout_of(off)},
                         Number::fp32, Number::fp32, nullptr);
  int64_t different = 0;
  const auto keep = kept(right), shifted = kept(off);
  for (int64_t i = 0; i < off.rows; ++i) {
    CHECK((forward[i] != 0) == (shifted[i] != 0));
    different += (forward[i] != 0) != (keep[i] != 0);
  }
  CHECK(different > 100);
}

TEST_CASE("kernels drop the same elements as the CPU") {
  for (const Case& c : kCases) {
    const auto keep = kept(c);
    const Array ones(Number::fp32, c.rows * c.n, 1);
    Array forward(Number::fp32, c.rows * c.n), backward(Number::fp32, c.rows * c.n);
    cuda::bias_dropout_add({.x = ones.data(), .y = forward.data(), .rows = c.rows, .n = c.n, .dropout = dropout_of(c)},
                           Number::fp32, Number::fp32, nullptr);
    cuda::bias_dropout_backward(
        {.dy = ones.data(), .dx = backward.data(), .rows = c.rows, .n = c.n, .dropout = dropout_of(c)}, Number::fp32,
        Number::fp32, nullptr);
    for (int64_t i = 0; i < c.rows * c.n; ++i) {
      REQUIRE((forward[i] != 0) == (keep[i] && c.probability < 1));
      REQUIRE(backward[i] == forward[i]);
    }
  }
}

}  // namespace shardline::dropout_kernels_test
