// Tests rotation and cross entropy.
#include <numeric>

#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::head_kernels_test {
namespace {

using namespace testing;

struct Shape {
  int64_t rows, v, row_stride;
};
// Rows that are read four columns at a time, with and without remaining columns, and rows that are not.
constexpr Shape kShapes[] = {{1, 1, 1},       {3, 7, 8},       {5, 260, 264}, {2, 1029, 1030},
                             {2, 1031, 1032}, {4, 1028, 1028}, {300, 4, 4}};

// -1 and v: not in the row.
std::vector<int64_t> labels_of(const Shape& s) {
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < s.rows; ++row) labels.push_back(row % 3 == 1 ? -1 : (row * 5 + 3) % s.v);
  labels.back() = s.v - 1;
  return labels;
}

struct Row {
  double largest = -INFINITY, sum = 0, picked = 0, log_sum_exp = 0;
};
Row row_of(const Array& logits, const Shape& s, int64_t row, int64_t label) {
  Row r;
  for (int64_t i = 0; i < s.v; ++i) r.largest = std::max(r.largest, logits[row * s.row_stride + i]);
  for (int64_t i = 0; i < s.v; ++i) r.sum += std::exp(logits[row * s.row_stride + i] - r.largest);
  if (label >= 0 && label < s.v) r.picked = logits[row * s.row_stride + label];
  r.log_sum_exp = r.largest + std::log(r.sum);
  return r;
}

void check(const Shape& s, Number type) {
  CAPTURE(s.rows, s.v, s.row_stride, static_cast<int>(type));
  const int64_t count = (s.rows - 1) * s.row_stride + s.v;
  Array logits = Array::random(type, count, 1, 3), whole(type, count);
  for (int64_t i = 0; i < count; ++i) whole.set(i, logits[i]);
  auto labels = labels_of(s);
  const double scale = 0.375;
  std::vector<double> largest, sum, picked, loss, gradient = logits.values();
  double total = 0.5, weight = 2;
  Array log_sum_exp(Number::fp32, s.rows), scales(Number::fp32, s.rows);
  for (int64_t row = 0; row < s.rows; ++row) {
    const Row r = row_of(logits, s, row, labels[row]);
    largest.push_back(r.largest);
    sum.push_back(r.sum);
    picked.push_back(r.picked);
    loss.push_back(labels[row] >= 0 ? r.log_sum_exp - r.picked : 0);
    log_sum_exp.set(row, r.log_sum_exp);
    scales.set(row, labels[row] >= 0 ? scale : 0);
    total += loss.back();
    weight += labels[row] >= 0;
    for (int64_t i = 0; i < s.v; ++i) {
      double& g = gradient[row * s.row_stride + i];
      g = labels[row] >= 0 ? (std::exp(g - r.log_sum_exp) - (i == labels[row])) * scale : 0;
    }
  }
  Array at_largest(Number::fp32, s.rows), at_sum(Number::fp32, s.rows), at_picked(Number::fp32, s.rows),
      at_loss(Number::fp32, s.rows);
  cuda::cross_entropy_stats({.logits = logits.data(),
                             .label = labels.data(),
                             .largest = at_largest.floats(),
                             .sum = at_sum.floats(),
                             .picked = at_picked.floats(),
                             .rows = s.rows,
                             .v = s.v,
                             .row_stride = s.row_stride},
                            type, nullptr);
  check_close(at_largest, largest, 0);
  check_close(at_sum, sum, 50);
  check_close(at_picked, picked, 0);
  cuda::cross_entropy_gradient({.logits = logits.data(),
                                .label = labels.data(),
                                .log_sum_exp = log_sum_exp.floats(),
                                .scale = scales.floats(),
                                .rows = s.rows,
                                .v = s.v,
                                .row_stride = s.row_stride},
                               type, nullptr);
  check_close(logits, gradient, 1);

  double totals[2] = {0.5, 2};
  cuda::WholeCrossEntropy a{.logits = whole.data(),
                            .label = labels.data(),
                            .loss = at_loss.floats(),
                            .total = totals,
                            .scale = static_cast<float>(scale),
                            .rows = s.rows,
                            .v = s.v,
                            .row_stride = s.row_stride,
                            .with_gradient = false};
  const auto before = whole.values();
  cuda::whole_cross_entropy(a, type, nullptr);
  CHECK(whole.values() == before);
  check_close(at_loss, loss, 10);
  CHECK(totals[0] == Approx(total).epsilon(1e-6));
  CHECK(totals[1] == weight);
  a.with_gradient = true;
  totals[0] = totals[1] = 0;
  cuda::whole_cross_entropy(a, type, nullptr);
  check_close(whole, gradient, 1);
  CHECK(totals[0] == Approx(total - 0.5).epsilon(1e-6).margin(1e-9));
}

}  // namespace

TEST_CASE("kernels of cross entropy equal float64 in both orders of threads") {
  in_both_orders([] {
    for (const Shape& shape : kShapes)
      for (const Number type : kNumbers) check(shape, type);
  });
}

TEST_CASE("kernels of cross entropy accept logits that are far apart or infinite, and ranks without entries") {
  Array logits(Number::fp32, 12, -INFINITY), largest(Number::fp32, 3), sum(Number::fp32, 3), picked(Number::fp32, 3);
  logits.set(4, 3e38);
  logits.set(5, -3e38);
  logits.set(9, -4);  // the only finite logit of its row
  const std::vector<int64_t> label = {0, 0, 4};
  cuda::cross_entropy_stats({.logits = logits.data(),
                             .label = label.data(),
                             .largest = largest.floats(),
                             .sum = sum.floats(),
                             .picked = picked.floats(),
                             .rows = 3,
                             .v = 4,
                             .row_stride = 4},
                            Number::fp32, nullptr);
  CHECK(largest.values() == std::vector<double>{-INFINITY, static_cast<double>(3e38f), -4});
  CHECK(sum.values() == std::vector<double>{0, 1, 1});
  CHECK(picked.values() == std::vector<double>{-INFINITY, static_cast<double>(3e38f), 0});
}

TEST_CASE("the kernel of rotations equals float64, and its gradient rotates back") {
  for (const Number type : kNumbers) {
    CAPTURE(static_cast<int>(type));
    const int64_t rows = 5, heads = 3, head_dim = 10, stride = 47, positions = 9, pairs = 4;
    Array x = Array::random(type, (rows - 1) * stride + heads * head_dim, 1);
    const std::vector<double> before = x.values();
    Array table(Number::fp32, 2 * positions * pairs);
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(p) * std::pow(10000, -static_cast<double>(i) / pairs);
        table.set(p * pairs + i, std::cos(angle));
        table.set((positions + p) * pairs + i, std::sin(angle));
      }
    const std::vector<int64_t> position = {0, 8, 3, 3, 7};
    std::vector<double> expected = before;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < pairs; ++i) {
          const int64_t first = row * stride + h * head_dim + 2 * i;
          const double c = table[position[row] * pairs + i], s = table[(positions + position[row]) * pairs + i];
          expected[first] = before[first] * c - before[first + 1] * s;
          expected[first + 1] = before[first + 1] * c + before[first] * s;
        }
    cuda::RotatePairs a{.x = x.data(),
                        .table = table.floats(),
                        .position = position.data(),
                        .rows = rows,
                        .heads = heads,
                        .head_dim = head_dim,
                        .row_stride = stride,
                        .positions = positions,
                        .pairs = pairs,
                        .back = false};
    cuda::rotate_pairs(a, type, nullptr);
    check_close(x, expected, 3);
    a.back = true;
    cuda::rotate_pairs(a, type, nullptr);
    check_close(x, before, 3, 2 * rounding_of(type));
  }
}

}  // namespace shardline::head_kernels_test
