#include "models/program/trace/size_formula.h"

#include <functional>

#include "tests/catch.h"

namespace shardline::size_formula_test {
namespace {

std::optional<SizeFormula> found(const std::function<int64_t(const BatchSize&)>& number,
                                 const std::vector<BatchSize>& further = {}) {
  std::vector<BatchSize> sizes(kTracedSizes.begin(), kTracedSizes.end());
  sizes.insert(sizes.end(), further.begin(), further.end());
  std::vector<int64_t> numbers;
  for (const auto& size : sizes) numbers.push_back(number(size));
  return formula_of(sizes, numbers);
}

}  // namespace

TEST_CASE("numbers that depend on batch and lengths get a formula", "[trace]") {
  CHECK(found([](auto) { return 12; }) == SizeFormula{.fixed = 12});
  CHECK(found([](auto size) { return size.batch; }) == SizeFormula{.by_batch = 1});
  CHECK(found([](auto size) { return size.length - 1; }) == SizeFormula{.fixed = -1, .by_length = 1});
  CHECK(found([](auto size) { return size.batch * (size.length - 1); }) == SizeFormula{.by_batch = -1, .by_rows = 1});
  CHECK(found([](auto size) { return 7 - 2 * size.batch + 3 * size.length; }) ==
        SizeFormula{.fixed = 7, .by_batch = -2, .by_length = 3});
  CHECK(found([](auto size) { return size.length + 2 * size.target; }) == SizeFormula{.by_length = 1, .by_target = 2});
  CHECK(found([](auto size) { return size.batch * (2 * size.target + size.length + 1); }) ==
        SizeFormula{.by_batch = 1, .by_rows = 1, .by_target_rows = 2});
}

TEST_CASE("numbers without a formula are found by the sizes that check it", "[trace]") {
  CHECK(!found([](auto size) { return size.length * size.length; }));
  CHECK(!found([](auto size) { return size.length * size.target; }));
  CHECK(!found([](auto size) { return size.batch / 2; }));
  CHECK(!found([](auto size) { return size.batch == 6; }));
  const auto one_is_special = [](auto size) { return size.batch == 1 ? 0 : size.batch; };
  CHECK(found(one_is_special));
  CHECK(!found(one_is_special, {{1, 5, 4}}));
}

TEST_CASE("a formula is written as a sum", "[trace]") {
  CHECK(SizeFormula{}.text() == "0");
  CHECK(SizeFormula{.by_batch = 1}.text() == "batch");
  CHECK(SizeFormula{.fixed = -1, .by_length = 2, .by_rows = 1}.text() == "batch * length + 2 * length + -1");
  CHECK(SizeFormula{.by_target = 1, .by_target_rows = 3}.text() == "3 * batch * target + target");
}

}  // namespace shardline::size_formula_test
