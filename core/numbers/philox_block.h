// The block of four words that philox.h's streams consist of, for processors and accelerators.
#pragma once
#include <cstdint>

namespace shardline {

struct PhiloxBlock {
  uint32_t word[4];
};

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

constexpr uint32_t upper_half(uint64_t x) {
  return x >> 32;
}
constexpr uint32_t lower_half(uint64_t x) {
  return x;
}

constexpr int kPhiloxRounds = 10;

// The keys of all rounds, derived from the first.
struct PhiloxKeys {
  uint32_t key0[kPhiloxRounds], key1[kPhiloxRounds];
};

constexpr PhiloxKeys philox_keys(uint32_t key0, uint32_t key1) {
  PhiloxKeys keys{};
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.key0[round] = key0 + round * kPhiloxWeyl0;
    keys.key1[round] = key1 + round * kPhiloxWeyl1;
  }
  return keys;
}

// Philox4x32-10 of a counter.
constexpr PhiloxBlock philox_block(PhiloxBlock c, const PhiloxKeys& keys) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c.word[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * c.word[2];
    c = {{upper_half(product1) ^ c.word[1] ^ keys.key0[round], lower_half(product1),
          upper_half(product0) ^ c.word[3] ^ keys.key1[round], lower_half(product0)}};
  }
  return c;
}
constexpr PhiloxBlock philox_block(PhiloxBlock c, uint32_t key0, uint32_t key1) {
  return philox_block(c, philox_keys(key0, key1));
}

// The part that all blocks of a stream share.
struct StreamWords {
  uint32_t high, sample, step, key0, key1;

  constexpr PhiloxBlock block(uint64_t index) const { return block(index, philox_keys(key0, key1)); }
  // The same for kernels that receive the keys of the rounds from the host.
  constexpr PhiloxBlock block(uint64_t index, const PhiloxKeys& keys) const {
    return philox_block({{lower_half(index), upper_half(index) | high, sample, step}}, keys);
  }
};

constexpr StreamWords stream_words(uint64_t seed, uint32_t op, uint32_t step, uint32_t sample) {
  return {op << 16, sample, step, lower_half(seed), upper_half(seed)};
}

// A word w keeps its element if w < limit.
constexpr uint64_t keep_limit(double keep_probability) {
  return keep_probability * 4294967296.0;
}

}  // namespace shardline
