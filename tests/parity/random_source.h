// Batches of random tokens that are the same on every layout.
#pragma once
#include <functional>

#include "engine/data/dataset/batch_source.h"

namespace shardline::parity {

struct RandomTokens {
  uint64_t seed = 0;
  int64_t vocab = 0, length = 0;
  bool ignored = false;                                  // a third of the labels do not count, nor does sample 1
  bool packed = false;                                   // several documents in each sample
  std::function<int64_t(int64_t step)> samples_in_step;  // in the global batch
};

class RandomSource : public BatchSource {
 public:
  explicit RandomSource(RandomTokens tokens) : tokens_(std::move(tokens)) {}

  int64_t samples_in_step(int64_t step) const override { return tokens_.samples_in_step(step); }
  Batch batch(int64_t step, const BatchSlice& slice) override;

 private:
  RandomTokens tokens_;
};

}  // namespace shardline::parity
