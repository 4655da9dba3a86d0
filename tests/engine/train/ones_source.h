// Batches in which every token is 1.
#pragma once
#include <ATen/ops/full.h>

#include "engine/data/dataset/batch_source.h"

namespace shardline {

class OnesSource : public BatchSource {
 public:
  OnesSource(int64_t samples, int64_t length) : samples_(samples), length_(length) {}
  int64_t samples_in_step(int64_t) const override { return samples_; }
  Batch batch(int64_t, const BatchSlice& slice) override {
    const auto ids = at::full({slice.count, length_}, 1, at::kLong);
    return {.rows = rows_of_slice(ids, {}, slice.first),
            .first_sample = slice.first,
            .global_samples = samples_,
            .tokens = samples_ * length_,
            .weight = samples_ * (length_ - 1)};
  }

 private:
  int64_t samples_, length_;
};

}  // namespace shardline
