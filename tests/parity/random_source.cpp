#include "tests/parity/random_source.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/numbers/philox.h"

namespace shardline::parity {

Batch RandomSource::batch(int64_t step, const BatchSlice& slice) {
  const int64_t length = tokens_.length, samples = samples_in_step(step);
  Batch batch{.first_sample = slice.first, .global_samples = samples, .tokens = samples * length};
  const auto ids = at::empty({slice.count, length}, at::kLong), labels = at::empty_like(ids);
  for (int64_t sample = 0; sample < samples; ++sample)
    for (int64_t position = 0; position < length; ++position) {
      const uint32_t word = random_word(
          {.seed = tokens_.seed, .op = 7, .step = static_cast<uint32_t>(step), .sample = static_cast<uint32_t>(sample)},
          static_cast<uint64_t>(position));
      const bool counts = !tokens_.ignored || (sample != 1 && word % 3 != 0);
      if (counts && position > 0) ++batch.weight;
      const int64_t row = sample - slice.first;
      if (row < 0 || row >= slice.count) continue;
      const int64_t id = word % static_cast<uint32_t>(tokens_.vocab);
      ids.data_ptr<int64_t>()[row * length + position] = id;
      labels.data_ptr<int64_t>()[row * length + position] = counts ? id : -100;
    }
  batch.rows = rows_of_slice(ids, labels, slice.first);
  return batch;
}

}  // namespace shardline::parity
