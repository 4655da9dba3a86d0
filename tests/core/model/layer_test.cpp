#include "core/model/layer.h"

#include <ATen/ops/ones.h>

#include <memory>

#include "tests/catch.h"

namespace shardline::layer_test {

TEST_CASE("a rank holds all rows of a border tensor, or its part of them with sequence parallelism") {
  CHECK(border_rows(12, 4, false) == 12);
  CHECK(border_rows(12, 4, true) == 3);
  CHECK(border_rows(13, 4, true) == 4);  // all of the last rank's rows are padding
  CHECK(border_rows(1, 4, true) == 1);
  CHECK(border_rows(0, 4, true) == 0);
  CHECK(border_rows(13, 1, true) == 13);
  for (int64_t tokens = 0; tokens < 50; ++tokens)
    for (int degree = 1; degree < 9; ++degree) {
      const auto rows = border_rows(tokens, degree, true);
      REQUIRE(rows * degree >= tokens);       // enough for every token
      REQUIRE((rows - 1) * degree < tokens);  // not one row more than needed
    }
}

TEST_CASE("symbolic sizes are bound to values, other sizes stay") {
  const auto rows = BorderTensor::kRows;
  CHECK(bind_shape({"hidden", {rows, 768}}, 24) == std::vector<int64_t>{24, 768});
  CHECK(bind_shape({"pairs", {rows, rows, 2}}, 5) == std::vector<int64_t>{5, 5, 2});
  CHECK(bind_shape({"fixed", {7}}, 24) == std::vector<int64_t>{7});
  CHECK(bind_shape({"empty batch", {rows, 768}}, 0) == std::vector<int64_t>{0, 768});
  CHECK(bind_shape({"scalar", {}}, 24).empty());
}

TEST_CASE("weight-gradient products run exactly once, in the order in which they were pushed") {
  std::string order;
  WeightGradQueue queue;
  CHECK(queue.empty());
  for (char letter : {'a', 'b', 'c'})
    queue.push({}, {}, [&order, letter](const auto&, const auto&) { order += letter; });
  CHECK_FALSE(queue.empty());
  CHECK(order.empty());
  queue.drain();
  CHECK(order == "abc");
  CHECK(queue.empty());
  queue.drain();
  CHECK(order == "abc");
}

TEST_CASE("a product's tensors are freed before the next product runs") {
  WeightGradQueue queue;
  const at::Tensor x = at::ones({2}), dy = at::ones({3});
  bool freed = false;
  queue.push(x, dy, [&](const at::Tensor& a, const at::Tensor& b) {
    CHECK(a.is_same(x));
    CHECK(b.is_same(dy));
  });
  queue.push({}, {}, [&](const auto&, const auto&) { freed = x.use_count() == 1 && dy.use_count() == 1; });
  CHECK(queue.tensors().size() == 4);
  queue.drain();
  CHECK(freed);
  CHECK(queue.tensors().empty());
}

TEST_CASE("an immediate queue runs a product when it is pushed") {
  WeightGradQueue queue;
  queue.immediate = true;
  int runs = 0;
  queue.push({}, {}, [&](const auto&, const auto&) { ++runs; });
  CHECK(runs == 1);
  CHECK(queue.empty());
}

}  // namespace shardline::layer_test
