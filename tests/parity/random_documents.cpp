#include "tests/parity/random_documents.h"

#include "core/numbers/philox.h"
#include "engine/data/examples/microbatch_rows.h"

namespace shardline::parity {

std::vector<int64_t> random_document_ends(uint64_t seed, int64_t step, int64_t sample, int64_t length) {
  constexpr uint32_t kOp = 11;
  std::vector<int64_t> ends;
  for (int64_t row = 1; row < length; ++row)
    if (random_word({.seed = seed, .op = kOp, .step = uint32_t(step), .sample = uint32_t(sample)}, row) % 4 == 0)
      ends.push_back(row);
  ends.push_back(length);
  return ends;
}

Batch DocumentsApart::batch(int64_t step, const BatchSlice& slice) {
  Batch batch = whole(step);
  const Microbatch mine = part_of(batch.rows, {slice.first, slice.count});
  batch.rows = rows_of_segments(mine.ends, slice.first);
  batch.rows.ids = mine.ids;
  batch.rows.labels = mine.labels;
  batch.sample_ends.clear();
  batch.first_sample = slice.first;
  batch.global_samples = samples_in_step(step);
  return batch;
}

}  // namespace shardline::parity
