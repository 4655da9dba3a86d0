#include "engine/data/dataset/example_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/hex.h"

namespace shardline {

ExampleRange examples_of_rows(const std::shared_ptr<const ExampleSet>& set, int64_t first, int64_t count) {
  const int64_t begin = set->first_of_row(first);
  return {set, begin, set->first_of_row(first + std::min(count, set->rows())) - begin};
}

ExampleSource::ExampleSource(ExampleRange data, SampleOrderOptions order)
    : data_(std::move(data)), order_([&] {
        order.samples = data_.count;
        return order;
      }()) {}

Batch ExampleSource::batch(int64_t step, const BatchSlice& slice) {
  SL_ASSERT(step >= 0, "step ", step);
  std::vector<int64_t> examples = order_.samples_of_batch(step / steps_per_epoch(), step % steps_per_epoch());
  Batch batch{.global_samples = std::ssize(examples), .epoch = order_.epochs_after(step)};
  for (int64_t& example : examples) {
    example += data_.first;
    batch.tokens += data_.set->tokens(example);
    batch.weight += data_.set->weight(example);
  }
  const BatchSlice mine = clipped(slice, batch.global_samples);
  batch.first_sample = mine.first;
  batch.sample_index.assign(examples.begin() + mine.first, examples.begin() + mine.first + mine.count);
  batch.rows = data_.set->microbatch(batch.sample_index, mine.first);
  return batch;
}

std::string ExampleSource::describe() const {
  int64_t tokens = 0, longest = 0;
  for (int64_t i = data_.first; i < data_.first + data_.count; ++i) {
    tokens += data_.set->tokens(i);
    longest = std::max(longest, data_.set->tokens(i));
  }
  std::string text = cat(data_.count, " examples, ", tokens, " tokens, longest ", longest);
  if (data_.set->shortened() > 0) text += cat(", ", data_.set->shortened(), " rows shortened");
  return text;
}

std::string ExampleSource::digest() const {
  return cat(hex_digits(data_.set->checksum()), ", ", data_.count, " examples from ", data_.first, " on");
}

}  // namespace shardline
