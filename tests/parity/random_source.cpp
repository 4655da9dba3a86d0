#include "tests/parity/random_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/numbers/philox.h"
#include "engine/data/examples/microbatch_rows.h"
#include "tests/parity/random_documents.h"

namespace shardline::parity {

Batch RandomSource::batch(int64_t step, const BatchSlice& slice) {
  const int64_t length = tokens_.length, samples = samples_in_step(step);
  Batch batch{.first_sample = slice.first, .global_samples = samples, .tokens = samples * length};
  const auto ids = at::empty({slice.count, length}, at::kLong), labels = at::empty_like(ids);
  std::vector<int64_t> ends, sample_ends;  // where documents and samples of the slice end
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t row = sample - slice.first;
    const bool is_mine = row >= 0 && row < slice.count;
    std::vector<bool> begins_document(length);
    begins_document[0] = true;
    if (tokens_.packed)
      for (const int64_t end : random_document_ends(tokens_.seed, step, sample, length)) {
        if (end < length) begins_document[end] = true;
        if (is_mine) ends.push_back(row * length + end);
      }
    if (is_mine) sample_ends.push_back(std::ssize(ends));
    for (int64_t position = 0; position < length; ++position) {
      const uint32_t word = random_word(
          {.seed = tokens_.seed, .op = 7, .step = static_cast<uint32_t>(step), .sample = static_cast<uint32_t>(sample)},
          static_cast<uint64_t>(position));
      const bool counts = !tokens_.ignored || (sample != 1 && word % 3 != 0);
      if (counts && !begins_document[position]) ++batch.weight;
      if (!is_mine) continue;
      const int64_t id = word % static_cast<uint32_t>(tokens_.vocab);
      ids.data_ptr<int64_t>()[row * length + position] = id;
      labels.data_ptr<int64_t>()[row * length + position] = counts ? id : -100;
    }
  }
  batch.rows = rows_of_slice(ids, labels, slice.first);
  if (!tokens_.packed) return batch;
  const Microbatch whole = batch.rows;
  batch.rows = rows_of_segments(ends, slice.first, sample_ends);
  batch.rows.ids = whole.ids;
  batch.rows.labels = whole.labels;
  for (const int64_t end : ends) batch.rows.labels[end - 1].fill_(kNoLabel);
  batch.sample_ends = sample_ends;
  return batch;
}

}  // namespace shardline::parity
