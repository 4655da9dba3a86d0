// Random documents in the samples of a batch.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/dataset/batch_source.h"

namespace shardline::parity {

// Where the documents of a sample of this length end: the number of rows before each end. A document has four rows on
// average.
std::vector<int64_t> random_document_ends(uint64_t seed, int64_t step, int64_t sample, int64_t length);

// The batches of a source whose samples are packed, in which each document is a sample.
class DocumentsApart : public BatchSource {
 public:
  explicit DocumentsApart(std::unique_ptr<BatchSource> packed) : packed_(std::move(packed)) {}

  int64_t samples_in_step(int64_t step) const override { return whole(step).rows.segments(); }
  Batch batch(int64_t step, const BatchSlice& slice) override;

 private:
  Batch whole(int64_t step) const { return packed_->batch(step, {0, packed_->samples_in_step(step)}); }

  std::unique_ptr<BatchSource> packed_;
};

}  // namespace shardline::parity
