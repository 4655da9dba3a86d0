#include "engine/data/dataset/seeded_shuffle.h"

#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): the state counts up by a constant, the output is a mix of it.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound): the part of the range that would favour small values is drawn again.
  uint64_t below(uint64_t bound) {
    const uint64_t uneven = (0 - bound) % bound;  // 2^64 mod bound
    uint64_t value = next();
    while (value < uneven) value = next();
    return value % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<uint32_t> shuffled_numbers(int64_t count, uint64_t seed, uint64_t purpose) {
  SL_ASSERT(count >= 0 && count <= std::numeric_limits<uint32_t>::max(), count, " numbers");
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  SplitMix64 random(SplitMix64(seed).next() ^ SplitMix64(~purpose).next());
  for (uint64_t left = numbers.size(); left > 1; --left) std::swap(numbers[left - 1], numbers[random.below(left)]);
  return numbers;
}

}  // namespace shardline
