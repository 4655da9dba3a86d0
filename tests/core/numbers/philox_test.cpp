#include "core/numbers/philox.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::philox_test {
namespace {

std::vector<uint8_t> keep(const RandomStream& stream, uint64_t first, int64_t count, double probability) {
  std::vector<uint8_t> mask(static_cast<size_t>(count) + 2, 77);  // a guard at both ends
  random_keep(stream, first, count, probability, mask.data() + 1);
  REQUIRE(mask.front() == 77);
  REQUIRE(mask.back() == 77);
  return {mask.begin() + 1, mask.end() - 1};
}

}  // namespace

TEST_CASE("the block function gives Random123's known answers for philox4x32-10") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("every part of a stream's name has its own bits in the counter") {
  const RandomStream stream{0x0123456789abcdef, 0x9876, 0xaaaa5555, 0x5555aaaa};
  const uint64_t element = (uint64_t{1} << 50) - 1;  // block 2^48 - 1
  const auto block = philox4x32({0xffffffff, 0x9876ffff, 0x5555aaaa, 0xaaaa5555}, {0x89abcdef, 0x01234567});
  CHECK(random_word(stream, element) == block[3]);
  CHECK(random_word(stream, element - 3) == block[0]);
}

TEST_CASE("neighbouring streams and elements share no random words") {
  std::set<uint32_t> words;
  size_t drawn = 0;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (uint32_t op : {0u, 1u, 65535u})
      for (uint32_t step : {0u, 1u})
        for (uint32_t sample : {0u, 1u})
          for (uint64_t element : {0ull, 1ull, 2ull, 3ull, 4ull, 1ull << 34, 1ull << 49}) {
            words.insert(random_word({seed, op, step, sample}, element));
            ++drawn;
          }
  CHECK(words.size() == drawn);  // a chance agreement of 252 words has a probability of 1e-5
}

TEST_CASE("a mask compares random words with a threshold, and any slice has the same elements") {
  const RandomStream stream{0xfeedface12345678, 17, 3, 5};
  // Ranges from the start, and ranges in which the low word of the block number overflows.
  for (const uint64_t base : {uint64_t{0}, (uint64_t{1} << 34) - 150, (uint64_t{3} << 34) - 77}) {
    const double probability = 0.9;
    const auto whole = keep(stream, base, 400, probability);
    for (uint64_t i = 0; i < 400; ++i)
      REQUIRE(whole[i] == (random_word(stream, base + i) < probability * 4294967296.0 ? 1 : 0));
    for (uint64_t first = 0; first < 70; ++first)
      for (const int64_t count : {0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 131, 200, 257, 330}) {
        const auto slice = keep(stream, base + first, count, probability);
        REQUIRE(std::equal(slice.begin(), slice.end(), whole.begin() + static_cast<long>(first)));
      }
  }
}

TEST_CASE("thresholds compare as unsigned numbers, and 0 and 1 are exact") {
  const RandomStream stream{9, 9, 9, 9};
  const auto count_kept = [&](double probability) {
    const auto mask = keep(stream, 1, 100001, probability);
    for (const auto bit : mask) REQUIRE(bit <= 1);
    return std::count(mask.begin(), mask.end(), 1);
  };
  CHECK(count_kept(0) == 0);
  CHECK(count_kept(1) == 100001);
  for (const double probability : {0.01, 0.1, 0.3, 0.4999, 0.5, 0.5001, 0.7, 0.9, 0.99}) {
    const double deviation = std::sqrt(100001 * probability * (1 - probability));
    CAPTURE(probability);
    CHECK(std::abs(double(count_kept(probability)) - 100001 * probability) < 4.5 * deviation);
  }
  uint8_t bit = 0;
  CHECK_THROWS_AS(random_keep(stream, 0, 1, 1.5, &bit), InvariantError);
  CHECK_THROWS_AS(random_keep(stream, 0, 1, -0.1, &bit), InvariantError);
  CHECK_THROWS_AS(random_keep(stream, 0, 1, std::nan(""), &bit), InvariantError);
}

TEST_CASE("whether an element is kept is not correlated with its neighbours") {
  const auto mask = keep({42, 1, 2, 3}, 0, 1 << 20, 0.5);
  for (const size_t lag : {1, 2, 3, 4, 8, 16, 32, 1024}) {
    double agreement = 0;
    for (size_t i = 0; i + lag < mask.size(); ++i) agreement += mask[i] == mask[i + lag];
    const double n = double(mask.size() - lag);
    CHECK(std::abs(agreement - n / 2) < 4.5 * std::sqrt(n) / 2);
  }
}

TEST_CASE("normal numbers have the moments and tails of a normal distribution") {
  const RandomStream stream{31337, 5, 0, 0};
  const int n = 400000;
  std::vector<double> normals(n);
  random_normals(stream, 0, n, normals.data());
  double sum = 0, squares = 0, cubes = 0, fourths = 0;
  int beyond_two = 0;
  for (const double x : normals) {
    REQUIRE(std::isfinite(x));
    sum += x;
    squares += x * x;
    cubes += x * x * x;
    fourths += x * x * x * x;
    beyond_two += std::abs(x) > 2;
  }
  // The standard deviations of these means are sqrt(1, 2, 15, 96) / sqrt(n).
  CHECK(std::abs(sum / n) < 4.5 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 4.5 * std::sqrt(2.0 / n));
  CHECK(std::abs(cubes / n) < 4.5 * std::sqrt(15.0 / n));
  CHECK(std::abs(fourths / n - 3) < 4.5 * std::sqrt(96.0 / n));
  CHECK(beyond_two / double(n) == Approx(0.0455).margin(0.002));
  // Elements 2i and 2i + 1 depend only on words 2i and 2i + 1.
  const double u = (random_word(stream, 6) + 0.5) / 4294967296.0, v = (random_word(stream, 7) + 0.5) / 4294967296.0;
  const double radius = std::sqrt(-2 * std::log(u));
  CHECK(normals[6] == Approx(radius * std::cos(2 * M_PI * v)).epsilon(1e-14));
  CHECK(normals[7] == Approx(radius * std::sin(2 * M_PI * v)).epsilon(1e-14));
}

}  // namespace shardline::philox_test
