#include "core/philox.h"

#include <cmath>

namespace shardline {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

std::array<uint32_t, 4> block(const RandomStream& stream, uint64_t index) {
  const uint32_t high = static_cast<uint32_t>(index >> 32) | (stream.op << 16);
  return philox4x32({static_cast<uint32_t>(index), high, stream.sample, stream.step},
                    {static_cast<uint32_t>(stream.seed), static_cast<uint32_t>(stream.seed >> 32)});
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c[0], product1 = uint64_t{kMultiplier1} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return c;
}

uint32_t random_word(const RandomStream& stream, uint64_t element) { return block(stream, element / 4)[element % 4]; }

void random_keep(const RandomStream& stream, uint64_t first, int64_t count, double keep_probability, uint8_t* keep) {
  const auto limit = static_cast<uint64_t>(keep_probability * 4294967296.0);
  for (int64_t i = 0; i < count;) {
    const auto words = block(stream, (first + static_cast<uint64_t>(i)) / 4);
    for (uint64_t word = (first + static_cast<uint64_t>(i)) % 4; word < 4 && i < count; ++word, ++i)
      keep[i] = words[word] < limit;
  }
}

double random_normal(const RandomStream& stream, uint64_t element) {
  const auto words = block(stream, element / 2);
  const size_t pair = element % 2 * 2;
  const double radius = std::sqrt(-2 * std::log((words[pair] + 0.5) / 4294967296.0));
  return radius * std::cos(6.283185307179586477 * ((words[pair + 1] + 0.5) / 4294967296.0));
}

}  // namespace shardline
