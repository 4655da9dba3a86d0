#include "core/numbers/philox.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/numbers/philox_block.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define SHARDLINE_PHILOX_AVX2
#include <immintrin.h>
#endif

namespace shardline {
namespace {

StreamWords words_of(const RandomStream& stream) {
  return stream_words(stream.seed, stream.op, stream.step, stream.sample);
}

#ifdef SHARDLINE_PHILOX_AVX2
constexpr int64_t kWideBlocks = 8;  // per round of the function below; two groups of four hide the multiplier's latency

// random_keep for 4 * kWideBlocks * rounds elements from the start of block `index`. A 64-bit lane holds a word of one
// block in its low half; multiplications ignore what earlier ones left in the high half.
__attribute__((target("avx2"))) void keep_wide(const StreamWords& stream, uint64_t index, int64_t rounds,
                                               uint32_t limit, uint8_t* keep) {
  constexpr int kGroups = kWideBlocks / 4;
  const __m256i multiplier0 = _mm256_set1_epi64x(kPhiloxMultiplier0),
                multiplier1 = _mm256_set1_epi64x(kPhiloxMultiplier1);
  const __m256i low_half = _mm256_set1_epi64x(0xFFFFFFFF), limits = _mm256_set1_epi32(limit);
  for (int64_t done = 0; done < rounds; ++done, index += kWideBlocks, keep += 4 * kWideBlocks) {
    __m256i c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
#pragma GCC unroll 2
    for (int group = 0; group < kGroups; ++group) {
      const int64_t first = index + 4 * group;
      c0[group] = _mm256_set_epi64x(first + 3, first + 2, first + 1, first);
      c1[group] = _mm256_or_si256(_mm256_srli_epi64(c0[group], 32), _mm256_set1_epi64x(stream.high));
      c2[group] = _mm256_set1_epi64x(stream.sample);
      c3[group] = _mm256_set1_epi64x(stream.step);
    }
    uint32_t key0 = stream.key0, key1 = stream.key1;
    for (int round = 0; round < 10; ++round, key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1) {
      const __m256i keys0 = _mm256_set1_epi64x(key0), keys1 = _mm256_set1_epi64x(key1);
#pragma GCC unroll 2
      for (int group = 0; group < kGroups; ++group) {
        const __m256i product0 = _mm256_mul_epu32(c0[group], multiplier0);
        const __m256i product1 = _mm256_mul_epu32(c2[group], multiplier1);
        c0[group] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), c1[group]), keys0);
        c2[group] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), c3[group]), keys1);
        c1[group] = product1;
        c3[group] = product0;
      }
    }
    __m256i dropped[kGroups];  // for the group's four blocks, in 16 bits: -1 where word >= limit
#pragma GCC unroll 2
    for (int group = 0; group < kGroups; ++group) {
      const __m256i words01 = _mm256_or_si256(_mm256_and_si256(c0[group], low_half), _mm256_slli_epi64(c1[group], 32));
      const __m256i words23 = _mm256_or_si256(_mm256_and_si256(c2[group], low_half), _mm256_slli_epi64(c3[group], 32));
      const __m256i blocks02 = _mm256_unpacklo_epi64(words01, words23);
      const __m256i blocks13 = _mm256_unpackhi_epi64(words01, words23);
      dropped[group] = _mm256_packs_epi32(_mm256_cmpeq_epi32(_mm256_max_epu32(blocks02, limits), blocks02),
                                          _mm256_cmpeq_epi32(_mm256_max_epu32(blocks13, limits), blocks13));
    }
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(dropped[0], dropped[1]), 0b11011000);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(keep), _mm256_add_epi8(bytes, _mm256_set1_epi8(1)));
  }
}

// Handles any first element and count: an incomplete round is computed in full, and the required part is copied.
void keep_all_wide(const StreamWords& stream, uint64_t first, int64_t count, uint32_t limit, uint8_t* keep) {
  constexpr int64_t kRound = 4 * kWideBlocks;
  while (count > 0) {
    const int64_t offset = first % 4;
    int64_t length = count / kRound * kRound;
    if (offset == 0 && length > 0) {
      keep_wide(stream, first / 4, length / kRound, limit, keep);
    } else {
      std::array<uint8_t, kRound> round;
      keep_wide(stream, first / 4, 1, limit, round.data());
      length = std::min(count, kRound - offset);
      std::copy_n(round.data() + offset, length, keep);
    }
    first += length;
    count -= length;
    keep += length;
  }
}
#endif

// Handles words one by one from `element` to the end of a block, or until count runs out; returns how many.
int64_t keep_in_block(const StreamWords& stream, uint64_t element, int64_t count, uint64_t limit, uint8_t* keep) {
  const PhiloxBlock words = stream.block(element / 4);
  const int64_t offset = element % 4;
  const int64_t length = std::min(count, 4 - offset);
  for (int64_t i = 0; i < length; ++i) keep[i] = words.word[offset + i] < limit;
  return length;
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  const PhiloxBlock block = philox_block({{c[0], c[1], c[2], c[3]}}, key[0], key[1]);
  return std::to_array(block.word);
}

uint32_t random_word(const RandomStream& stream, uint64_t element) {
  return words_of(stream).block(element / 4).word[element % 4];
}

void random_keep(const RandomStream& stream, uint64_t first, int64_t count, double keep_probability, uint8_t* keep) {
  SL_ASSERT(keep_probability >= 0 && keep_probability <= 1, "the probability of keeping is ", keep_probability);
  const StreamWords words = words_of(stream);
  const uint64_t limit = keep_limit(keep_probability);
#ifdef SHARDLINE_PHILOX_AVX2
  if (limit <= UINT32_MAX && __builtin_cpu_supports("avx2")) return keep_all_wide(words, first, count, limit, keep);
#endif
  for (int64_t done = 0; done < count;) done += keep_in_block(words, first + done, count - done, limit, keep + done);
}

namespace {

// The four normally distributed numbers of a block: two pairs by Box-Muller.
std::array<double, 4> normals_of_block(const StreamWords& stream, uint64_t index) {
  const PhiloxBlock block = stream.block(index);
  std::array<double, 4> normals;
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2 * std::log((block.word[pair] + 0.5) / 4294967296.0));
    const double angle = 6.283185307179586477 * ((block.word[pair + 1] + 0.5) / 4294967296.0);
    normals[pair] = radius * std::cos(angle);
    normals[pair + 1] = radius * std::sin(angle);
  }
  return normals;
}

}  // namespace

void random_normals(const RandomStream& stream, uint64_t first, int64_t count, double* normals) {
  const StreamWords words = words_of(stream);
  for (int64_t done = 0; done < count;) {
    const uint64_t element = first + done;
    const auto block = normals_of_block(words, element / 4);
    for (uint64_t i = element % 4; i < 4 && done < count; ++i) normals[done++] = block[i];
  }
}

}  // namespace shardline
