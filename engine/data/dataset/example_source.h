// Batches of the examples of a task.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/data/dataset/batch_source.h"
#include "engine/data/dataset/token_masking.h"
#include "engine/data/examples/example_set.h"

namespace shardline {

// The examples of a set that are of neighbouring rows of the data.
struct ExampleRange {
  std::shared_ptr<const ExampleSet> set;
  int64_t first = 0, count = 0;
};
// The examples of rows [first, first + count), or of fewer if the data ends.
ExampleRange examples_of_rows(const std::shared_ptr<const ExampleSet>& set, int64_t first, int64_t count);
// {training, validation}: of the rows that have examples, the first `percentage` % are held out. Throws as
// count_validation_blocks if a part would have none of these rows.
std::pair<ExampleRange, ExampleRange> split_validation(const std::shared_ptr<const ExampleSet>& set, double percentage);

class ExampleSource final : public EpochSource {
 public:
  // masking: if set, tokens are hidden from the model, other ones in each epoch; only these count.
  ExampleSource(ExampleRange data, const SampleOrderOptions& order, std::optional<TokenMasking> masking = {})
      : EpochSource(data.count, order), data_(std::move(data)), masking_(masking) {}

  int64_t dropped_tokens() const override { return data_.set->left_over(); }
  std::string describe() const override;
  std::string digest() const override;
  const ExampleRange& data() const { return data_; }

 private:
  void read(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const override;
  // Replaces ids and labels of the slice's rows; sets the weight of the whole batch.
  void mask(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const;

  ExampleRange data_;
  std::optional<TokenMasking> masking_;
};

}  // namespace shardline
