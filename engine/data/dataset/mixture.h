// Which samples an epoch has if the parts of a data set have weights.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

struct MixedPart {
  int64_t samples = 0;
  double weight = 1;  // above 0; only ratios count
};

// An epoch has as many samples as all parts together. Each part has the share of its weight, exactly, up to one sample
// (the largest remainders are rounded up). A part is read in epochs of its own: each of its samples occurs once before
// one occurs again, and where an epoch of the mixture ends, the next one continues. The samples of an epoch depend only
// on the parts, the seed and the epoch.
class Mixture {
 public:
  // Throws DataError if a part would have no sample in an epoch.
  explicit Mixture(std::vector<MixedPart> parts);

  int64_t samples() const { return samples_; }  // in an epoch
  size_t parts() const { return parts_.size(); }
  int64_t count(size_t part) const { return counts_[part]; }
  // The samples of an epoch in order, as numbers: those of the first part are 0, 1, ..., then those of the second
  // follow. shuffle: parts alternate at random, and each of their epochs has a different random order; otherwise parts
  // alternate evenly, in the order of their samples.
  std::vector<uint32_t> samples_of_epoch(int64_t epoch, uint64_t seed, bool shuffle) const;
  // Describes one part: "700 samples of an epoch (70.0 %), 1.40 times its own 500".
  std::string describe(size_t part) const;

 private:
  std::vector<uint32_t> parts_in_turn(int64_t epoch, uint64_t seed, bool shuffle) const;

  std::vector<MixedPart> parts_;
  std::vector<int64_t> counts_;  // samples of each part in an epoch
  int64_t samples_ = 0;
};

}  // namespace shardline
