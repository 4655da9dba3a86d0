#include "core/layer.h"

#include <memory>

#include "tests/catch.h"

using namespace shardline;

TEST_CASE("a rank holds all rows of a border, or its part of them under sequence parallelism") {
  CHECK(border_rows(12, 4, false) == 12);
  CHECK(border_rows(12, 4, true) == 3);
  CHECK(border_rows(13, 4, true) == 4);  // the last rank's rows are padding from the first on
  CHECK(border_rows(1, 4, true) == 1);
  CHECK(border_rows(0, 4, true) == 0);
  CHECK(border_rows(13, 1, true) == 13);
  for (int64_t tokens = 0; tokens < 50; ++tokens)
    for (int degree = 1; degree < 9; ++degree) {
      const auto rows = border_rows(tokens, degree, true);
      REQUIRE(rows * degree >= tokens);       // enough for every token
      REQUIRE((rows - 1) * degree < tokens);  // and not one row more than needed
    }
}

TEST_CASE("symbolic sizes are bound, others stay") {
  const auto rows = BorderTensor::kRows;
  CHECK(bind_shape({"hidden", {rows, 768}}, 24) == std::vector<int64_t>{24, 768});
  CHECK(bind_shape({"pairs", {rows, rows, 2}}, 5) == std::vector<int64_t>{5, 5, 2});
  CHECK(bind_shape({"fixed", {7}}, 24) == std::vector<int64_t>{7});
  CHECK(bind_shape({"empty batch", {rows, 768}}, 0) == std::vector<int64_t>{0, 768});
  CHECK(bind_shape({"scalar", {}}, 24).empty());
}

TEST_CASE("weight-gradient products run in the order in which they were pushed, once") {
  std::string order;
  WeightGradQueue queue;
  CHECK(queue.empty());
  for (char letter : {'a', 'b', 'c'}) queue.push([&order, letter] { order += letter; });
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
  auto kept = std::make_shared<int>(1);
  std::weak_ptr<int> watched = kept;
  queue.push([kept] {});
  kept.reset();
  bool freed = false;
  queue.push([&] { freed = watched.expired(); });
  CHECK_FALSE(watched.expired());
  queue.drain();
  CHECK(freed);
}

TEST_CASE("an immediate queue runs a product when it is pushed") {
  WeightGradQueue queue;
  queue.immediate = true;
  int runs = 0;
  queue.push([&] { ++runs; });
  CHECK(runs == 1);
  CHECK(queue.empty());
}
