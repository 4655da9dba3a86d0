#include "models/program/trace/size_formula.h"

#include "tests/catch.h"

namespace shardline::size_formula_test {
namespace {

TracedNumbers numbers_of(const std::function<int64_t(const BatchSize&)>& number) {
  TracedNumbers numbers;
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(kTracedSizes[i]);
  return numbers;
}

}  // namespace

TEST_CASE("numbers that follow from batch and length get their formula", "[trace]") {
  CHECK(formula_of(numbers_of([](auto) { return 12; })) == SizeFormula{.fixed = 12});
  CHECK(formula_of(numbers_of([](auto size) { return size.batch; })) == SizeFormula{.by_batch = 1});
  CHECK(formula_of(numbers_of([](auto size) { return size.length - 1; })) == SizeFormula{.fixed = -1, .by_length = 1});
  CHECK(formula_of(numbers_of([](auto size) { return size.batch * (size.length - 1); })) ==
        SizeFormula{.by_batch = -1, .by_both = 1});
  CHECK(formula_of(numbers_of([](auto size) { return 7 - 2 * size.batch + 3 * size.length; })) ==
        SizeFormula{.fixed = 7, .by_batch = -2, .by_length = 3});
}

TEST_CASE("numbers without a formula are found by the last size", "[trace]") {
  CHECK(!formula_of(numbers_of([](auto size) { return size.length * size.length; })));
  CHECK(!formula_of(numbers_of([](auto size) { return size.batch / 2; })));
  CHECK(!formula_of(numbers_of([](auto size) { return size.batch == 6; })));
}

TEST_CASE("a formula is written as a sum", "[trace]") {
  CHECK(SizeFormula{}.text() == "0");
  CHECK(SizeFormula{.by_batch = 1}.text() == "batch");
  CHECK(SizeFormula{.fixed = -1, .by_length = 2, .by_both = 1}.text() == "batch * length + 2 * length + -1");
}

}  // namespace shardline::size_formula_test
