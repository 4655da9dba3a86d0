#include "engine/data/dataset/repeated_batch.h"

#include <ATen/ops/empty.h>

#include "core/numbers/philox.h"

namespace shardline {

RepeatedBatch::RepeatedBatch(int64_t samples, int64_t length, int64_t vocabulary, uint64_t seed)
    : ids_(at::empty({samples, length}, at::kLong)) {
  for (int64_t i = 0; i < ids_.numel(); ++i) ids_.data_ptr<int64_t>()[i] = random_word({.seed = seed}, i) % vocabulary;
}

Batch RepeatedBatch::batch(int64_t, const BatchSlice& slice) {
  const auto ids = ids_.narrow(0, slice.first, slice.count);
  return {.rows = rows_of_slice(ids, {}, slice.first),
          .first_sample = slice.first,
          .global_samples = ids_.size(0),
          .tokens = ids_.numel(),
          .weight = ids_.size(0) * (ids_.size(1) - 1)};
}

}  // namespace shardline
