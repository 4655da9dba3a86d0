#include "engine/data/dataset/example_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/hex.h"

namespace shardline {

namespace {

// Adds samples with the examples in [begin, end); each sample has one or several of them.
void add_bins(const Examples& data, int64_t begin, int64_t end, int64_t packed_length, Bins& bins) {
  const int64_t before = std::ssize(bins.items);
  if (packed_length == 0) {
    for (int64_t i = begin; i < end; ++i) {
      bins.items.push_back(i);
      bins.ends.push_back(i + 1);
    }
    return;
  }
  std::vector<int64_t> lengths;
  for (int64_t i = begin; i < end; ++i) lengths.push_back(data.set->tokens(data[i]));
  const Bins packed = best_fit_decreasing(lengths, packed_length);
  for (const uint32_t item : packed.items) bins.items.push_back(begin + item);
  for (const int64_t bin_end : packed.ends) bins.ends.push_back(before + bin_end);
}

PartBins bins_of(const Examples& data, int64_t packed_length, bool has_weights) {
  std::vector<int64_t> ends = {data.size()};            // examples before the end of each part
  if (has_weights && !data.set->part_ends().empty()) {  // a set of a single part does not name its end
    ends.clear();
    for (const int64_t row : data.set->part_ends()) {
      int64_t end = ends.empty() ? 0 : ends.back();
      while (end < data.size() && data.set->row(data[end]) < row) ++end;
      ends.push_back(end);
    }
  }
  PartBins made;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t before = std::ssize(made.bins.ends);
    add_bins(data, begin, end, packed_length, made.bins);
    made.part_samples.push_back(std::ssize(made.bins.ends) - before);
    begin = end;
  }
  return made;
}

SampleOrderOptions with_parts(SampleOrderOptions order, const std::vector<int64_t>& part_samples) {
  order.part_samples = part_samples;
  return order;
}

}  // namespace

Selection rows_with_examples(const ExampleSet& set) {
  std::vector<uint32_t> rows;
  for (int64_t i = 0; i < set.size(); ++i)
    if (i == 0 || set.row(i) != set.row(i - 1)) rows.push_back(set.row(i));
  return Selection(std::move(rows));
}

Examples examples_of_rows(const std::shared_ptr<const ExampleSet>& set, const Selection& rows) {
  std::vector<uint32_t> examples;
  for (int64_t i = 0; i < rows.size(); ++i)
    for (int64_t example = set->first_of_row(rows[i]); example < set->first_of_row(rows[i] + 1); ++example)
      examples.push_back(example);
  return {set, Selection(std::move(examples))};
}

ExampleSource::ExampleSource(Examples data, const SampleOrderOptions& order, const Options& options)
    : ExampleSource(data, order, options, bins_of(data, options.packed_length, !order.weights.empty())) {}

ExampleSource::ExampleSource(Examples data, const SampleOrderOptions& order, const Options& options, PartBins made)
    : EpochSource(made.bins.size(), with_parts(order, made.part_samples),
                  [&](int64_t sample) {
                    int64_t tokens = 0;
                    for (const uint32_t item : made.bins[sample]) tokens += data.set->tokens(data[item]);
                    return tokens;
                  }),
      data_(std::move(data)),
      masking_(options.masking),
      bins_(std::move(made.bins)) {
  SL_ASSERT(!masking_ || options.packed_length == 0, "masks are those of samples");
}

void ExampleSource::read(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const {
  for (const int64_t sample : samples)
    for (const uint32_t item : bins_[sample]) {
      batch.tokens += data_.set->tokens(data_[item]);
      batch.weight += data_.set->weight(data_[item]);
    }
  std::vector<int64_t> examples;
  for (const int64_t sample : batch.sample_index) {
    for (const uint32_t item : bins_[sample]) examples.push_back(data_[item]);
    batch.sample_ends.push_back(std::ssize(examples));
  }
  const bool is_packed = bins_.items.size() != bins_.ends.size();
  if (!is_packed) batch.sample_index = examples;
  batch.rows = data_.set->microbatch(examples, batch.first_sample, batch.sample_ends);
  if (masking_) mask(samples, epoch, batch);
}

void ExampleSource::mask(const std::vector<int64_t>& samples, int64_t epoch, Batch& batch) const {
  auto* ids = batch.rows.ids.mutable_data_ptr<int64_t>();
  batch.rows.labels.fill_(kNoLabel);
  auto* labels = batch.rows.labels.mutable_data_ptr<int64_t>();
  const int64_t first = batch.first_sample, end = first + std::ssize(batch.sample_index);
  batch.weight = 0;
  for (int64_t i = 0, row = 0; i < std::ssize(samples); ++i) {
    const int64_t example = data_[samples[i]];
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
  for (int64_t i = 0; i < data_.size(); ++i) {
    tokens += data_.set->tokens(data_[i]);
    longest = std::max(longest, data_.set->tokens(data_[i]));
  }
  const std::string columns = data_.set->columns_text();
  std::string text = columns.empty() ? cat(data_.size(), " examples, ", tokens, " tokens, longest ", longest)
                                     : cat(data_.size(), " examples, ", columns);
  if (samples() != data_.size()) text += cat(", packed into ", samples(), " samples");
  if (data_.set->shortened() > 0) text += cat(", ", data_.set->shortened(), " rows shortened");
  if (data_.set->left_out() > 0) text += cat(", ", data_.set->left_out(), " rows left out");
  if (data_.set->left_over() > 0) text += cat(", ", data_.set->left_over(), " tokens left over");
  return text;
}

std::string ExampleSource::digest() const {
  return cat(hex_digits(data_.set->checksum()), ", ", data_.size(), " examples ", data_.chosen.describe(),
             mixture_digest());
}

}  // namespace shardline
