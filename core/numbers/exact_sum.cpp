#include "core/numbers/exact_sum.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace shardline {
namespace {

constexpr int kBits = 32;
constexpr int64_t kMask = (int64_t{1} << kBits) - 1;
constexpr int64_t kMostAdditions = int64_t{1} << 30;  // before a word could overflow

}  // namespace

void ExactSum::add(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int exponent = bits >> 52 & 0x7ff;
  if (exponent == 0x7ff) {
    ++words_[std::isnan(value) ? kNans : kInfinities];
    return;
  }
  SL_ASSERT(!std::signbit(value) || value == 0, "exact sums take only numbers that are not negative; got ", value);
  // value = mantissa * 2^(place - 1074)
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent > 0) mantissa |= uint64_t{1} << 52;
  const int place = exponent > 0 ? exponent - 1 : 0;
  const unsigned __int128 unshifted = mantissa, shifted = unshifted << (place % kBits);
  auto* word = &words_[place / kBits];
  word[0] += int64_t(shifted) & kMask;
  word[1] += int64_t(shifted >> kBits) & kMask;
  word[2] += shifted >> (2 * kBits);
  if (++additions_ == kMostAdditions) carry();
}

void ExactSum::add(const ExactSum& other) {
  ExactSum carried = other;
  carried.carry();
  carry();
  for (size_t i = 0; i < kWords; ++i) words_[i] += carried.words_[i];
  carry();
}

void ExactSum::carry() {
  for (size_t i = 0; i + 1 < kInfinities; ++i) {
    words_[i + 1] += words_[i] >> kBits;
    words_[i] &= kMask;
  }
  additions_ = 0;
}

double ExactSum::value() const {
  if (words_[kNans] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (words_[kInfinities] > 0) return std::numeric_limits<double>::infinity();
  ExactSum carried = *this;
  carried.carry();
  // Adding from the lowest word up loses less than half of the result's last bit.
  long double sum = 0;
  for (size_t i = 0; i < kInfinities; ++i) {
    const long double word = carried.words_[i];
    const int place = i * kBits;
    sum += std::ldexp(word, place - 1074);
  }
  return sum;
}

const std::array<int64_t, ExactSum::kWords>& ExactSum::words() {
  carry();
  return words_;
}

ExactSum ExactSum::of_words(const int64_t* words) {
  ExactSum sum;
  std::memcpy(sum.words_.data(), words, sizeof sum.words_);
  sum.carry();
  return sum;
}

}  // namespace shardline
