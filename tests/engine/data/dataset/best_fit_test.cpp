#include "engine/data/dataset/best_fit.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/numbers/philox.h"

#include "tests/catch.h"

namespace shardline::best_fit_test {
namespace {

std::vector<std::vector<uint32_t>> bins(const std::vector<int64_t>& lengths, int64_t capacity) {
  const Bins made = best_fit_decreasing(lengths, capacity);
  std::vector<std::vector<uint32_t>> all;
  for (int64_t bin = 0; bin < made.size(); ++bin) all.emplace_back(made[bin].begin(), made[bin].end());
  return all;
}

}  // namespace

TEST_CASE("the longest items are placed first, each in the fullest bin that has room for it", "[data][packing]") {
  using All = std::vector<std::vector<uint32_t>>;
  CHECK(bins({}, 10).empty());
  CHECK(bins({10}, 10) == All{{0}});
  CHECK(bins({4, 6, 5, 3, 2}, 10) == All{{0, 1}, {2, 3, 4}});
  CHECK(bins({2, 8, 9, 1}, 10) == All{{0, 1}, {2, 3}});  // not 1 with 8
  CHECK(bins({5, 5, 5}, 10) == All{{0, 1}, {2}});
  CHECK_THROWS_AS(bins({11}, 10), InvariantError);
  CHECK_THROWS_AS(bins({0}, 10), InvariantError);
}

TEST_CASE("every item is in exactly one bin, no bin is too full, and few bins are needed", "[data][packing]") {
  constexpr int64_t kCapacity = 100;
  std::vector<int64_t> lengths;
  for (int i = 0; i < 5000; ++i) lengths.push_back(1 + random_word({.seed = 3}, i) % kCapacity);
  const auto all = bins(lengths, kCapacity);
  std::set<uint32_t> items;
  uint32_t first_before = 0;
  for (const auto& bin : all) {
    int64_t sum = 0;
    for (const uint32_t item : bin) {
      sum += lengths[item];
      CHECK(items.insert(item).second);
    }
    CHECK(sum <= kCapacity);
    CHECK(std::ranges::is_sorted(bin));
    CHECK((bin.front() == 0 || bin.front() > first_before));
    first_before = bin.front();
  }
  CHECK(items.size() == lengths.size());
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  CHECK(std::ssize(all) <= 1.03 * tokens / kCapacity + 1);
}

}  // namespace shardline::best_fit_test
