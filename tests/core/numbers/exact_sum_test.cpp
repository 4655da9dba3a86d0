#include "core/numbers/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace shardline::exact_sum_test {
namespace {

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

}  // namespace

TEST_CASE("sums are exact even where doubles would be rounded") {
  CHECK(sum_of({}).value() == 0);
  CHECK(sum_of({0.0, -0.0}).value() == 0);
  CHECK(sum_of({1e300, 1, 1e-300}).value() == 1e300);
  std::vector<double> many(1000, 1.0);
  many.insert(many.begin(), 0x1p53);  // a plain sum would lose every addition of 1
  CHECK(sum_of(many).value() == 0x1p53 + 1000);
  CHECK(sum_of({0x1p-1074, 0x1p-1074}).value() == 0x1p-1073);
  CHECK(sum_of({0x1p-1074, 0x1p-1022, 0x1p-1074}).value() == 0x1p-1022 + 0x1p-1073);
  const double most = std::numeric_limits<double>::max();
  CHECK(sum_of({most}).value() == most);
  CHECK(std::isinf(sum_of({most, most}).value()));
}

TEST_CASE("the sum depends neither on the order nor on which rank adds which part") {
  std::mt19937_64 random(5);
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i)
    values.push_back(
        std::ldexp(std::uniform_real_distribution<>(0, 1)(random), static_cast<int>(random() % 400) - 200));
  const double expected = sum_of(values).value();
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    const auto cut = values.begin() + static_cast<long>(random() % values.size());
    ExactSum first = sum_of({values.begin(), cut}), second = sum_of({cut, values.end()});
    auto words = first.words();  // the way ranks add them
    for (size_t i = 0; i < words.size(); ++i) words[i] += second.words()[i];
    CHECK(ExactSum::of_words(words.data()).value() == expected);
    first.add(second);
    CHECK(first.value() == expected);
  }
}

TEST_CASE("values that are not finite stay so") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isinf(sum_of({1, infinity, 2}).value()));
  CHECK(std::isnan(sum_of({1, infinity, nan}).value()));
  ExactSum sum = sum_of({1});
  sum.add(sum_of({nan}));
  CHECK(std::isnan(sum.value()));
}

}  // namespace shardline::exact_sum_test
