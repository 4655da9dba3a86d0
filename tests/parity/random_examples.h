// Batches of random examples of a task, of different lengths, that are the same on every layout.
#pragma once
#include <functional>
#include <string>

#include "engine/data/dataset/batch_source.h"

namespace shardline::parity {

inline constexpr int64_t kLabels = 3;  // in the tasks that classify

struct RandomTask {
  uint64_t seed = 0;
  std::string task;  // as Point::task
  int64_t vocab = 0, length = 0, types = 1;
  bool ignored = false;                                  // a third of the labels do not count
  bool packed = false;                                   // completions: several in each sample
  std::string padding = "dynamic";                       // as Point::padding
  std::function<int64_t(int64_t step)> samples_in_step;  // in the global batch
};

class RandomExamples : public BatchSource {
 public:
  explicit RandomExamples(RandomTask task) : task_(std::move(task)) {}

  int64_t samples_in_step(int64_t step) const override { return task_.samples_in_step(step); }
  Batch batch(int64_t step, const BatchSlice& slice) override;

 private:
  RandomTask task_;
};

}  // namespace shardline::parity
