// Examples in memory as the batch of an evaluation.
#pragma once
#include <span>

#include "engine/data/dataset/batch_source.h"
#include "engine/data/examples/example_set.h"

namespace shardline {

// One step with all of the examples, which must outlive it. Either all or none of them have labels.
class ExampleBatch final : public BatchSource {
 public:
  explicit ExampleBatch(std::span<const Example> examples) : examples_(examples) {}
  Batch batch(int64_t step, const BatchSlice& slice) override;
  int64_t samples_in_step(int64_t) const override { return std::ssize(examples_); }

 private:
  std::span<const Example> examples_;
};

}  // namespace shardline
