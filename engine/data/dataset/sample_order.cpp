#include "engine/data/dataset/sample_order.h"

#include <algorithm>
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

// The last one may be short.
int64_t batches_of(int64_t samples, int64_t batch) {
  return samples / batch + (samples % batch != 0 ? 1 : 0);
}

}  // namespace

SampleOrder::SampleOrder(const SampleOrderOptions& options) : options_(options) {
  SL_ASSERT(options.samples >= 1 && options.samples <= std::numeric_limits<uint32_t>::max(), options.samples,
            " samples");
  SL_ASSERT(
      options.global_batch >= 1 && options.loader_batches >= 1 && options.global_batch % options.loader_batches == 0,
      "global batch of ", options.global_batch, " in ", options.loader_batches);
  loader_batch_ = options.global_batch / options.loader_batches;
  kept_ = options.samples - (options.drop_last ? options.samples % loader_batch_ : 0);
  if (kept_ == 0) {
    throw DataError(cat("the data has ", options.samples, " samples, less than one batch of ", loader_batch_,
                        ", and training.dataloader_drop_last drops it; give more data, or a smaller batch"));
  }
}

int64_t SampleOrder::batches_per_epoch() const {
  return batches_of(kept_, options_.global_batch);
}

int64_t SampleOrder::samples_in_batch(int64_t k) const {
  SL_ASSERT(k >= 0 && k < batches_per_epoch(), "batch ", k, " of ", batches_per_epoch());
  return std::min(options_.global_batch, kept_ - k * options_.global_batch);
}

double SampleOrder::epochs_after(int64_t step) const {
  const int64_t in_epoch = batches_of(kept_, loader_batch_);
  const int64_t done = std::min(in_epoch, (step % batches_per_epoch() + 1) * options_.loader_batches);
  return step / batches_per_epoch() + 1.0 * done / in_epoch;
}

std::vector<int64_t> SampleOrder::samples_of_batch(int64_t epoch, int64_t k) {
  std::vector<int64_t> samples(samples_in_batch(k));
  const int64_t first = k * options_.global_batch;
  if (!options_.shuffle) {
    std::iota(samples.begin(), samples.end(), first);
    return samples;
  }
  if (epoch != shuffled_epoch_) shuffle(epoch);
  std::copy_n(permutation_.begin() + first, samples.size(), samples.begin());
  return samples;
}

void SampleOrder::shuffle(int64_t epoch) {
  permutation_.resize(options_.samples);
  std::iota(permutation_.begin(), permutation_.end(), 0u);
  // Seed and epoch each go through the generator, so that (1, 2) and (2, 1) are unrelated.
  SplitMix64 random(SplitMix64(options_.seed).next() ^ SplitMix64(~epoch).next());
  for (uint64_t left = permutation_.size(); left > 1; --left) {
    std::swap(permutation_[left - 1], permutation_[random.below(left)]);
  }
  shuffled_epoch_ = epoch;
}

}  // namespace shardline
