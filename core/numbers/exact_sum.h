// A sum of doubles without rounding: a fixed-point number wide enough for every double (Kulisch's long accumulator;
// Neal 2015, "Fast exact summation using small and large superaccumulators", arXiv 1505.05571). The sum is the same to
// the last bit for any order of additions and any number of threads or ranks.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardline {

class ExactSum {
 public:
  // Each word holds 32 bits of the number, from 2^-1074 up, and has room for carries; the last two words count
  // infinities and NaNs.
  static constexpr size_t kWords = 70, kInfinities = kWords - 2, kNans = kWords - 1;

  void add(double value);
  void add(const ExactSum& other);
  double value() const;  // rounded once; infinite or NaN if such values were added

  // For sums over ranks: integers to be added elementwise, over at most 2^30 ranks.
  const std::array<int64_t, kWords>& words();
  static ExactSum of_words(const int64_t* words);

 private:
  void carry();

  std::array<int64_t, kWords> words_ = {};
  int64_t additions_ = 0;  // since the last carry
};

}  // namespace shardline
