// Which samples form a global batch: a pure function of (seed, epoch, k), whatever the layout of the ranks.
#pragma once
#include <cstdint>
#include <vector>

namespace shardline {

struct SampleOrderOptions {
  int64_t samples = 0;
  int64_t global_batch = 1;
  uint64_t seed = 0;
  bool shuffle = true;     // else file order in every epoch
  bool drop_last = false;  // else the last batch of an epoch may be short
};

// Global batch k of an epoch holds positions k*global_batch .. (k+1)*global_batch-1 of the epoch's permutation, which
// is a Fisher-Yates shuffle driven by splitmix64: the same on every machine. One object serves one thread.
class SampleOrder {
 public:
  // DataError when drop_last would leave no batch.
  explicit SampleOrder(const SampleOrderOptions& options);

  int64_t batches_per_epoch() const;
  int64_t samples_in_batch(int64_t k) const;
  std::vector<int64_t> samples_of_batch(int64_t epoch, int64_t k);

 private:
  void shuffle(int64_t epoch);

  SampleOrderOptions options_;
  int64_t shuffled_epoch_ = -1;
  std::vector<uint32_t> permutation_;  // of shuffled_epoch_
};

}  // namespace shardline
