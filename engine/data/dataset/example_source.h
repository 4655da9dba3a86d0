// Batches of the examples of a task with labels.
#pragma once
#include <memory>
#include <string>

#include "engine/data/dataset/batch_source.h"
#include "engine/data/examples/example_set.h"

namespace shardline {

// The examples of a set that are of neighbouring rows of the data.
struct ExampleRange {
  std::shared_ptr<const ExampleSet> set;
  int64_t first = 0, count = 0;
};
// The examples of rows [first, first + count), or of fewer if the data ends.
ExampleRange examples_of_rows(const std::shared_ptr<const ExampleSet>& set, int64_t first, int64_t count);

class ExampleSource final : public EpochSource {
 public:
  // order.samples is set from the range.
  ExampleSource(ExampleRange data, SampleOrderOptions order);

  Batch batch(int64_t step, const BatchSlice& slice) override;
  int64_t samples_in_step(int64_t step) const override { return order_.samples_in_batch(step % steps_per_epoch()); }
  int64_t steps_per_epoch() const override { return order_.batches_per_epoch(); }
  int64_t samples() const override { return data_.count; }
  std::string describe() const override;
  std::string digest() const override;
  const ExampleRange& data() const { return data_; }

 private:
  ExampleRange data_;
  SampleOrder order_;
};

}  // namespace shardline
