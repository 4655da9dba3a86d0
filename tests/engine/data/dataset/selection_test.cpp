#include "engine/data/dataset/selection.h"

#include <set>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::selection_test {
namespace {

std::vector<int64_t> numbers(const Selection& selection) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < selection.size(); ++i) all.push_back(selection[i]);
  return all;
}

}  // namespace

TEST_CASE("without a seed, the first rows are chosen", "[data][split]") {
  const Selection all(10, 5);
  CHECK(numbers(all) == std::vector<int64_t>{10, 11, 12, 13, 14});
  const auto [first, rest] = all.divided(2, std::nullopt);
  CHECK(numbers(first) == std::vector<int64_t>{10, 11});
  CHECK(numbers(rest) == std::vector<int64_t>{12, 13, 14});
  CHECK(numbers(all.at_most(99, std::nullopt)) == numbers(all));
  CHECK(first.describe() == "from 10 on");
  const Selection listed(std::vector<uint32_t>{1, 4, 5, 9});
  CHECK(numbers(listed.divided(3, std::nullopt).first) == std::vector<int64_t>{1, 4, 5});
  CHECK(Selection(std::vector<uint32_t>{4, 5, 6}).describe() == "from 4 on");
  CHECK_THROWS_AS(Selection(std::vector<uint32_t>{1, 1}), InvariantError);
}

TEST_CASE("with a seed, each row is chosen equally often, and both parts together contain all rows", "[data][split]") {
  constexpr int kSize = 20, kChosen = 5, kSeeds = 2000;
  const Selection all(100, kSize);
  std::vector<int> times(kSize);
  std::set<std::string> different;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto [chosen, others] = all.divided(kChosen, seed);
    REQUIRE(chosen.size() == kChosen);
    REQUIRE(others.size() == kSize - kChosen);
    std::set<int64_t> together;
    for (const int64_t number : numbers(chosen)) {
      ++times[number - 100];
      together.insert(number);
    }
    for (const int64_t number : numbers(others)) together.insert(number);
    CHECK(together.size() == kSize);
    different.insert(chosen.describe());
  }
  CHECK(different.size() > 1500);                                                         // there are 15504 choices
  for (const int count : times) CHECK(std::abs(count - kSeeds * kChosen / kSize) < 110);  // 5 standard deviations
  CHECK(numbers(all.divided(kChosen, 7).first) == numbers(all.divided(kChosen, 7).first));
}

TEST_CASE("a seed chooses the same rows on every machine", "[data][split]") {
  CHECK(numbers(Selection(0, 10).divided(4, 42).first) == std::vector<int64_t>{1, 2, 7, 9});
  CHECK(numbers(Selection(std::vector<uint32_t>{1, 3, 5, 7, 11}).divided(2, 42).first) == std::vector<int64_t>{3, 7});
}

}  // namespace shardline::selection_test
