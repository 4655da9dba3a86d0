#include "engine/data/dataset/example_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/hex.h"
#include "engine/data/dataset/block_dataset.h"

namespace shardline {

ExampleRange examples_of_rows(const std::shared_ptr<const ExampleSet>& set, int64_t first, int64_t count) {
  const int64_t begin = set->first_of_row(first);
  return {set, begin, set->first_of_row(first + std::min(count, set->rows())) - begin};
}

std::pair<ExampleRange, ExampleRange> split_validation(const std::shared_ptr<const ExampleSet>& set,
                                                       double percentage) {
  std::vector<int64_t> begins;  // the first example of each row
  for (int64_t i = 0; i < set->size(); ++i)
    if (i == 0 || set->row(i) != set->row(i - 1)) begins.push_back(i);
  const int64_t border = begins[count_validation_blocks(std::ssize(begins), percentage)];
  return {{set, border, set->size() - border}, {set, 0, border}};
}

void ExampleSource::read(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const {
  for (const int64_t sample : samples) {
    batch.tokens += data_.set->tokens(data_.first + sample);
    batch.weight += data_.set->weight(data_.first + sample);
  }
  for (int64_t& example : batch.sample_index) example += data_.first;
  batch.rows = data_.set->microbatch(batch.sample_index, batch.first_sample);
  if (masking_) mask(samples, epoch, batch);
}

void ExampleSource::mask(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const {
  auto* ids = batch.rows.ids.mutable_data_ptr<int64_t>();
  batch.rows.labels.fill_(kNoLabel);
  auto* labels = batch.rows.labels.mutable_data_ptr<int64_t>();
  const int64_t first = batch.first_sample, end = first + std::ssize(batch.sample_index);
  batch.weight = 0;
  for (int64_t i = 0, row = 0; i < std::ssize(samples); ++i) {
    const int64_t example = data_.first + samples[i];
    const auto masked = masking_->tokens_of(*data_.set, example, epoch);
    batch.weight += std::ssize(masked);
    if (i < first || i >= end) continue;
    for (const auto& [place, shown] : masked) {
      labels[row + place] = ids[row + place];
      ids[row + place] = shown;
    }
    row += data_.set->tokens(example);
  }
}

std::string ExampleSource::describe() const {
  int64_t tokens = 0, longest = 0;
  for (int64_t i = data_.first; i < data_.first + data_.count; ++i) {
    tokens += data_.set->tokens(i);
    longest = std::max(longest, data_.set->tokens(i));
  }
  std::string text = cat(data_.count, " examples, ", tokens, " tokens, longest ", longest);
  if (data_.set->shortened() > 0) text += cat(", ", data_.set->shortened(), " rows shortened");
  if (data_.set->left_over() > 0) text += cat(", ", data_.set->left_over(), " tokens left over");
  return text;
}

std::string ExampleSource::digest() const {
  return cat(hex_digits(data_.set->checksum()), ", ", data_.count, " examples from ", data_.first, " on");
}

}  // namespace shardline
