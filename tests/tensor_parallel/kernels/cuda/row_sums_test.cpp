#include "tests/tensor_parallel/kernels/cuda/arrays.h"

namespace shardline::row_sums_test {
namespace {

using namespace testing;

void check(int64_t rows, int64_t n, int64_t stride, Number type) {
  CAPTURE(rows, n, stride, static_cast<int>(type));
  const Array x = Array::random(type, (rows - 1) * stride + n, 1);
  Array total(Number::fp32, n, 0.25);
  std::vector<double> expected(n, 0.25);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < n; ++column) expected[column] += x[row * stride + column];
  cuda::add_column_sums({.x = x.data(), .total = total.floats(), .rows = rows, .n = n, .row_stride = stride}, type,
                        nullptr);
  check_close(total, expected, std::sqrt(rows));
}

}  // namespace

TEST_CASE("the kernel of column sums equals float64 in both orders of threads") {
  in_both_orders([] {
    for (const Number type : kNumbers)
      for (const int64_t rows : {1, 31, 33, 200})
        for (const int64_t n : {1, 32, 70}) check(rows, n, n + rows % 2 * 3, type);
  });
  cuda::add_column_sums({}, Number::fp32, nullptr);  // no rows
}

}  // namespace shardline::row_sums_test
