#include "engine/serve/example_batch.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <ranges>

#include "engine/data/examples/microbatch_rows.h"

namespace shardline {
namespace {

// Which words are wanted for the masked tokens of these examples, as targets of their segments; see word_search.
at::Tensor targets_of(std::span<const Example> examples, int64_t most) {
  const auto count = [](const Example& example) { return example.words.only.size(); };
  const int64_t width = 1 + std::ranges::max(examples | std::views::transform(count));
  at::Tensor targets = at::full({std::ssize(examples), width}, -1, at::kLong);
  auto* first = targets.mutable_data_ptr<int64_t>();
  for (const Example& example : examples) {
    *first = most;
    std::ranges::copy(example.words.only, first + 1);
    first += width;
  }
  return targets;
}

}  // namespace

Batch ExampleBatch::batch(int64_t, const BatchSlice& slice) {
  Batch batch{.global_samples = std::ssize(examples_)};
  const BatchSlice mine = clipped(slice, batch.global_samples);
  batch.first_sample = mine.first;
  int64_t most_words = 1;  // for any example, including those of other slices
  for (const Example& example : examples_) {
    batch.tokens += std::ssize(example.ids);
    batch.weight += std::ranges::count_if(example.labels, [](int32_t label) { return label != kNoLabel; });
    most_words = std::max(most_words, example.words.most);
  }
  const auto examples = examples_.subspan(mine.first, mine.count);
  std::vector<int64_t> ends;
  for (const Example& example : examples) ends.push_back((ends.empty() ? 0 : ends.back()) + std::ssize(example.ids));
  batch.rows = rows_of_segments(std::move(ends), mine.first);
  batch.rows.types = at::zeros_like(batch.rows.ids);
  const bool has_labels = !examples_.front().labels.empty();
  if (has_labels) batch.rows.labels = at::empty_like(batch.rows.ids);
  if (has_labels && !examples.empty()) batch.rows.targets = targets_of(examples, most_words);
  int64_t row = 0;
  const auto put = [&](at::Tensor& tensor, const auto& values) {
    std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>() + row);
  };
  for (const Example& example : examples) {
    put(batch.rows.ids, example.ids);
    put(batch.rows.types, example.types);
    if (has_labels) put(batch.rows.labels, example.labels);
    row += std::ssize(example.ids);
  }
  return batch;
}

}  // namespace shardline
