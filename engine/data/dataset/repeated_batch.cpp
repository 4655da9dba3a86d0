#include "engine/data/dataset/repeated_batch.h"

#include <ATen/ops/empty.h>

#include "core/numbers/philox.h"

namespace shardline {
namespace {

at::Tensor random_ids(int64_t samples, int64_t length, int64_t vocabulary, uint64_t seed) {
  const at::Tensor ids = at::empty({samples, length}, at::kLong);
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data_ptr<int64_t>()[i] = random_word({.seed = seed}, i) % vocabulary;
  return ids;
}

}  // namespace

RepeatedBatch::RepeatedBatch(const at::Tensor& ids)
    : RepeatedBatch(rows_of_slice(ids, {}, 0), ids.size(0) * (ids.size(1) - 1)) {}

RepeatedBatch::RepeatedBatch(int64_t samples, int64_t length, int64_t vocabulary, uint64_t seed)
    : RepeatedBatch(random_ids(samples, length, vocabulary, seed)) {}

Batch RepeatedBatch::batch(int64_t, const BatchSlice& slice) {
  return {.rows = part_of(whole_, {slice.first, slice.count}),
          .first_sample = slice.first,
          .global_samples = whole_.segments(),
          .tokens = whole_.tokens(),
          .weight = weight_};
}

}  // namespace shardline
