// Batches of the examples of a task.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "engine/data/dataset/batch_source.h"
#include "engine/data/dataset/best_fit.h"
#include "engine/data/dataset/selection.h"
#include "engine/data/dataset/token_masking.h"
#include "engine/data/examples/example_set.h"

namespace shardline {

// Some examples of a set, in its order.
struct Examples {
  std::shared_ptr<const ExampleSet> set;
  Selection chosen;
  int64_t size() const { return chosen.size(); }
  int64_t operator[](int64_t i) const { return chosen[i]; }
};

// The examples of each sample, by their places in the data, and the numbers of samples of the set's parts.
struct PartBins {
  Bins bins;
  std::vector<int64_t> part_samples;
};

// The rows of the data that have at least one example.
Selection rows_with_examples(const ExampleSet& set);
Examples examples_of_rows(const std::shared_ptr<const ExampleSet>& set, const Selection& rows);

class ExampleSource final : public EpochSource {
 public:
  struct Options {
    // If set: tokens are masked, different ones in each epoch, and only these count.
    std::optional<TokenMasking> masking = {};
    // Above 0: several examples, of at most this many tokens together, are packed into each sample (best_fit.h).
    int64_t packed_length = 0;
  };
  // With weights, which are those of the set's parts, samples are packed within each part.
  ExampleSource(Examples data, const SampleOrderOptions& order, const Options& options);
  ExampleSource(Examples data, const SampleOrderOptions& order) : ExampleSource(std::move(data), order, Options()) {}

  int64_t dropped_tokens() const override { return data_.set->left_over(); }
  std::string describe() const override;
  std::string digest() const override;
  const Examples& data() const { return data_; }

 private:
  ExampleSource(Examples data, const SampleOrderOptions& order, const Options& options, PartBins made);
  void read(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const override;
  // Replaces ids and labels of the slice's rows; sets the weight of the whole batch.
  void mask(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const;

  Examples data_;
  std::optional<TokenMasking> masking_;
  Bins bins_;  // the places in data_ of the examples of each sample
};

}  // namespace shardline
