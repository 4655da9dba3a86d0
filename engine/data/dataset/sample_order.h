// Which samples form a global batch: a pure function of (seed, epoch, k), whatever the layout of the ranks.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/dataset/mixture.h"

namespace shardline {

struct SampleOrderOptions {
  int64_t samples = 0;
  int64_t global_batch = 1;
  int64_t loader_batches = 1;  // batches in a global batch: transformers' data loaders yield that many in a step
  uint64_t seed = 0;
  bool shuffle = true;           // false: file order in every epoch
  bool group_by_length = false;  // if shuffled: samples of about the same length share a batch
  bool drop_last = false;        // leave out an epoch's last loader batch if it is short
  // For each part of the data, in its order: the weights, if there are any, and the numbers of samples.
  std::vector<double> weights = {};
  std::vector<int64_t> part_samples = {};
};

// Global batch k of an epoch holds positions k*global_batch .. (k+1)*global_batch-1 of the epoch's permutation, which
// is that of shuffled_numbers, or of the epoch's samples in a Mixture. With group_by_length, the permutation is cut
// into parts of at most 50 batches and at most a quarter of the samples (but at least one batch), each part is sorted
// from the longest sample to the shortest, and the longest of all samples changes places with the first one. The last
// batch of an epoch is short unless global_batch divides the samples; with drop_last it still holds whole loader
// batches. One object serves one thread.
class SampleOrder {
 public:
  // lengths: of the samples; needed only to group by length. Throws DataError if drop_last would leave no batch.
  explicit SampleOrder(const SampleOrderOptions& options, std::vector<int64_t> lengths = {});

  int64_t batches_per_epoch() const;
  int64_t samples_in_batch(int64_t k) const;
  std::vector<int64_t> samples_of_batch(int64_t epoch, int64_t k);
  // Epochs done after global batch `step`, counted from 0 over all epochs: the loader batches done, as in transformers.
  double epochs_after(int64_t step) const;
  const std::optional<Mixture>& mixture() const { return mixture_; }

 private:
  void shuffle(int64_t epoch);
  void group_by_length();

  SampleOrderOptions options_;
  std::vector<int64_t> lengths_;
  std::optional<Mixture> mixture_;
  int64_t loader_batch_, kept_;  // number of samples in a loader batch, and in an epoch
  int64_t shuffled_epoch_ = -1;
  std::vector<uint32_t> permutation_;  // order of shuffled_epoch_; samples of a mixture may be missing or repeated
};

}  // namespace shardline
