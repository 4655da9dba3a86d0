#include "core/memory/transposing_copy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "tests/catch.h"

namespace shardline::transposing_copy_test {

namespace {

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType dtype) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return at::arange(elements, at::kDouble).to(dtype).view(sizes);
}

// Copies `from` to the middle of a larger tensor, and checks that all elements arrive and that the others keep their
// values.
void check_copy(const at::Tensor& from, at::ScalarType dtype) {
  CAPTURE(from.sizes(), from.strides(), dtype);
  std::vector<int64_t> larger = from.sizes().vec();
  for (auto& size : larger) size += 2;
  const auto target = at::full(larger, -1, dtype), expected = target.clone();
  const auto middle = [&](at::Tensor part) {
    for (int64_t d = 0; d < part.dim(); ++d) part = part.narrow(d, 1, from.size(d));
    return part;
  };
  copy_transposing(middle(target), from);
  middle(expected).copy_(from);
  CHECK(target.equal(expected));
}

}  // namespace

TEST_CASE("copies between any orders of dimensions equal those of copy_") {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kLong}) {
    for (const int64_t rows : {1, 15, 16, 17, 31, 33, 160})
      for (const int64_t columns : {1, 14, 16, 23, 30, 46, 48, 110})
        check_copy(numbers({columns, rows}, dtype).t(), dtype);
    const auto cube = numbers({3, 20, 5, 37}, dtype);
    for (const auto& order : std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {3, 0, 1, 2}, {1, 3, 2, 0}, {2, 3, 0, 1}})
      check_copy(cube.permute(order), dtype);
    check_copy(numbers({40, 50}, dtype).narrow(0, 3, 30).narrow(1, 5, 33).t(), dtype);
    check_copy(numbers({40, 1}, dtype).expand({40, 20}), dtype);
    check_copy(numbers({0, 20}, dtype).t(), dtype);
    check_copy(numbers({}, dtype), dtype);
  }
  check_copy(numbers({40, 50}, at::kFloat).t(), at::kDouble);
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  check_copy(numbers({700, 301}, at::kFloat).t(), at::kFloat);
  at::set_num_threads(threads);
}

TEST_CASE("copies to contiguous targets, whose dimensions are merged, equal those of copy_") {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const int64_t last : {16, 37, 64}) {
      const auto cube = numbers({3, 20, 5, last}, dtype);
      for (const auto& order :
           std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {3, 0, 1, 2}, {1, 3, 2, 0}, {2, 3, 0, 1}})
        for (const auto& from : {cube.permute(order), cube.permute(order).narrow(0, 0, 1),
                                 cube.select(1, 0).unsqueeze(1).expand({3, 20, 5, last}).permute(order)}) {
          CAPTURE(from.sizes(), from.strides());
          const auto target = at::empty(from.sizes(), dtype);
          copy_transposing(target, from);
          CHECK(target.equal(from));
        }
    }
}

TEST_CASE("one row can be copied to all rows of a target") {
  const auto target = at::empty({20, 30}), row = numbers({30}, at::kFloat);
  copy_transposing(target.t(), row.unsqueeze(1));
  CHECK(target.equal(row.expand({20, 30})));
}

}  // namespace shardline::transposing_copy_test
