// The same global batch at every step: for measurements, which want nothing but the step.
#pragma once
#include "engine/data/dataset/batch_source.h"

namespace shardline {

class RepeatedBatch final : public BatchSource {
 public:
  explicit RepeatedBatch(at::Tensor ids) : ids_(std::move(ids)) {}                    // [samples, length] int64
  RepeatedBatch(int64_t samples, int64_t length, int64_t vocabulary, uint64_t seed);  // random ids

  int64_t samples_in_step(int64_t) const override { return ids_.size(0); }
  Batch batch(int64_t, const BatchSlice& slice) override;

 private:
  at::Tensor ids_;
};

}  // namespace shardline
