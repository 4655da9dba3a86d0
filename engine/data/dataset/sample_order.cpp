#include "engine/data/dataset/sample_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "engine/data/dataset/seeded_shuffle.h"

namespace shardline {
namespace {

constexpr int64_t kMostBatchesOfPart = 50;  // see group_by_length

// The last one may be short.
int64_t batches_of(int64_t samples, int64_t batch) {
  return samples / batch + (samples % batch != 0 ? 1 : 0);
}

}  // namespace

SampleOrder::SampleOrder(const SampleOrderOptions& options, std::vector<int64_t> lengths)
    : options_(options), lengths_(std::move(lengths)) {
  SL_ASSERT(options.samples >= 1 && options.samples <= std::numeric_limits<uint32_t>::max(), options.samples,
            " samples");
  SL_ASSERT(
      options.global_batch >= 1 && options.loader_batches >= 1 && options.global_batch % options.loader_batches == 0,
      "global batch of ", options.global_batch, " in ", options.loader_batches);
  if (!options.weights.empty()) {
    SL_ASSERT(options.weights.size() == options.part_samples.size(), options.part_samples.size(), " parts");
    std::vector<MixedPart> parts;
    for (size_t part = 0; part < options.weights.size(); ++part)
      parts.push_back({.samples = options.part_samples[part], .weight = options.weights[part]});
    mixture_.emplace(std::move(parts));
    SL_ASSERT(mixture_->samples() == options.samples, mixture_->samples(), " samples in the parts");
  }
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
  if (!options_.shuffle && !mixture_) {
    std::iota(samples.begin(), samples.end(), first);
    return samples;
  }
  if (epoch != shuffled_epoch_) shuffle(epoch);
  std::copy_n(permutation_.begin() + first, samples.size(), samples.begin());
  return samples;
}

void SampleOrder::shuffle(int64_t epoch) {
  permutation_ = mixture_ ? mixture_->samples_of_epoch(epoch, options_.seed, options_.shuffle)
                          : shuffled_numbers(options_.samples, options_.seed, epoch);
  if (options_.group_by_length) group_by_length();
  shuffled_epoch_ = epoch;
}

// As in transformers' LengthGroupedSampler: parts of the permutation, of several batches each, are sorted from the
// longest sample to the shortest.
void SampleOrder::group_by_length() {
  SL_ASSERT(std::ssize(lengths_) == options_.samples, lengths_.size(), " lengths of ", options_.samples, " samples");
  const int64_t batch = options_.global_batch;
  const int64_t part = batch * std::clamp<int64_t>(options_.samples / (4 * batch), 1, kMostBatchesOfPart);
  const auto length_of = [&](uint32_t sample) { return lengths_[sample]; };
  int64_t longest = 0;  // the place of the longest sample, which is the first one of its part
  for (int64_t begin = 0; begin < options_.samples; begin += part) {
    const auto from = permutation_.begin() + begin;
    std::ranges::stable_sort(from, from + std::min(part, options_.samples - begin), std::ranges::greater(), length_of);
    if (length_of(permutation_[begin]) > length_of(permutation_[longest])) longest = begin;
  }
  // This way, a batch that is too large for the memory fails in the first step.
  std::swap(permutation_[0], permutation_[longest]);
}

}  // namespace shardline
