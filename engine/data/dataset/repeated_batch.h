// The same global batch in every step, for measurements of the step alone.
#pragma once
#include "engine/data/dataset/batch_source.h"

namespace shardline {

class RepeatedBatch final : public BatchSource {
 public:
  // weight: labels of the whole that count.
  RepeatedBatch(Microbatch whole, int64_t weight) : whole_(std::move(whole)), weight_(weight) {}
  explicit RepeatedBatch(const at::Tensor& ids);  // [samples, length] int64, for causal language models
  RepeatedBatch(int64_t samples, int64_t length, int64_t vocabulary, uint64_t seed);  // random ids

  int64_t samples_in_step(int64_t) const override { return whole_.segments(); }
  Batch batch(int64_t, const BatchSlice& slice) override;
  const Microbatch& whole() const { return whole_; }

 private:
  Microbatch whole_;
  int64_t weight_;
};

}  // namespace shardline
