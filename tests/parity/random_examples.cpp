#include "tests/parity/random_examples.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/numbers/philox.h"
#include "engine/data/examples/microbatch_rows.h"
#include "engine/data/source/tokenised_row.h"
#include "tests/parity/random_documents.h"

namespace shardline::parity {
namespace {

struct RandomExample {
  std::vector<int64_t> ids, types, labels;
  std::vector<double> targets;
  int64_t weight = 0;
  int64_t source = 0;  // rows before the target, of sources with targets
};

bool predicts_words(const RandomTask& task) {
  return task.task == "masked-lm" || task.task == "completions";
}

bool predicts_rows(const RandomTask& task) {
  return task.task == "token-classification" || task.task == "seq2seq-lm" || predicts_words(task);
}

RandomExample example_of(const RandomTask& task, int64_t step, int64_t sample) {
  uint64_t drawn = 0;
  const auto draw = [&](int64_t values) {
    return int64_t{
        random_word({.seed = task.seed, .op = 9, .step = uint32_t(step), .sample = uint32_t(sample)}, drawn++) %
        uint32_t(values)};
  };
  RandomExample example;
  if (task.task == "seq2seq-lm") {
    example.source = 1 + draw(task.length / 2);
    const int64_t rows = example.source + 1 + draw(task.length / 2);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t id = example.ids.emplace_back(draw(task.vocab));
      const bool counts = row >= example.source && (!task.ignored || draw(3) != 0);
      example.labels.push_back(counts ? id : kNoLabel);
      example.weight += counts;
    }
    return example;
  }
  const int64_t length = 1 + draw(task.length);
  const bool of_words = predicts_words(task), of_rows = predicts_rows(task);
  for (int64_t row = 0; row < length; ++row) {
    example.ids.push_back(draw(task.vocab));
    example.types.push_back(draw(task.types));
    if (!of_rows) continue;
    const bool counts = (!of_words || draw(2) == 0) && (!task.ignored || draw(3) != 0);
    example.labels.push_back(counts ? draw(of_words ? task.vocab : kLabels) : kNoLabel);
    example.weight += counts;
  }
  if (of_rows) return example;
  example.weight = 1;
  if (task.task == "regression") {
    example.targets = {draw(1000) / 300.0 - 1};
  } else if (task.task == "several labels") {
    for (int64_t label = 0; label < kLabels; ++label) example.targets.push_back(draw(2));
  } else if (task.ignored && draw(3) == 0) {
    example.weight = 0;
    example.targets.assign(task.task == "question-answering" ? 2 : 1, kNoLabel);
  } else if (task.task == "question-answering") {
    const double first = draw(length);
    example.targets = {first, first + draw(length - int64_t(first))};
  } else {
    example.targets = {double(draw(kLabels))};
  }
  return example;
}

// The same example after it was padded, as a tokenizer of transformers pads it, and read from the row that it then is.
// What stands in padding would change the run if it had an effect.
RandomExample padded_and_read(RandomExample example, const RandomTask& task, uint64_t place) {
  const auto length = std::ssize(example.ids);
  constexpr int64_t kMost = 8;
  const int64_t added = task.padding == "to max_length" ? task.length - length
                                                        : random_word({.seed = task.seed, .op = 12}, place) % kMost;
  const bool left = task.padding == "left";
  const auto padded = [&](std::vector<int64_t> values, int64_t filler) {
    values.insert(left ? values.begin() : values.end(), added, filler);
    return values;
  };
  DataRow row{.columns = {{"input_ids", padded(example.ids, task.vocab - 1)},
                          {"attention_mask", padded(std::vector<int64_t>(length, 1), 0)},
                          {"token_type_ids", padded(example.types, task.types - 1)}},
              .where = "a padded row"};
  const bool has_labels = !example.labels.empty();
  if (has_labels) row.columns["labels"] = padded(example.labels, 1);
  const TokenisedRow tokens = tokenised_row(row).value();
  SL_ASSERT(tokens.length == length + added && std::ssize(tokens.ids) == length, "the row was not padded");
  example.ids.assign(tokens.ids.begin(), tokens.ids.end());
  example.types.assign(tokens.types.begin(), tokens.types.end());
  if (has_labels) {
    example.labels.clear();
    for (const auto& label : values_of_tokens(row, tokens, "labels")) example.labels.push_back(label.get<int64_t>());
  }
  if (task.task == "question-answering" && example.weight > 0)  // places in the row's lists
    for (double& target : example.targets) {
      const int64_t in_row = int64_t(target) + (left ? added : 0);
      target = double(std::ranges::find(tokens.places, in_row) - tokens.places.begin());
    }
  return example;
}

}  // namespace

Batch RandomExamples::batch(int64_t step, const BatchSlice& slice) {
  Batch batch{.first_sample = slice.first, .global_samples = samples_in_step(step)};
  std::vector<int64_t> ids, types, labels, ends, target_begins;
  std::vector<double> targets;
  for (int64_t sample = 0; sample < batch.global_samples; ++sample) {
    RandomExample example = example_of(task_, step, sample);
    if (task_.padding != "none") example = padded_and_read(std::move(example), task_, step * 1000 + sample);
    const auto length = std::ssize(example.ids);
    batch.weight += example.weight;
    batch.tokens += length;
    if (sample < slice.first || sample >= slice.first + slice.count) continue;
    ids.insert(ids.end(), example.ids.begin(), example.ids.end());
    types.insert(types.end(), example.types.begin(), example.types.end());
    labels.insert(labels.end(), example.labels.begin(), example.labels.end());
    targets.insert(targets.end(), example.targets.begin(), example.targets.end());
    const int64_t before = std::ssize(ids) - length;
    if (example.source > 0) target_begins.push_back(before + example.source);
    for (const int64_t end :
         task_.packed ? random_document_ends(task_.seed, step, sample, length) : std::vector<int64_t>{length})
      ends.push_back(before + end);
    batch.sample_ends.push_back(std::ssize(ends));
  }
  const auto integers = [](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); };
  Microbatch& rows = batch.rows;
  rows = rows_of_segments(ends, slice.first, batch.sample_ends);
  rows.ids = integers(ids);
  rows.target_begins = target_begins;
  if (task_.types > 1) rows.types = integers(types);
  if (predicts_rows(task_)) {
    rows.labels = integers(labels);
    return batch;
  }
  const bool is_number = task_.task == "regression" || task_.task == "several labels";
  const int64_t width = task_.task == "several labels" ? kLabels : task_.task == "question-answering" ? 2 : 1;
  rows.targets = at::tensor(targets, at::kDouble).to(is_number ? at::kFloat : at::kLong);
  if (width > 1) rows.targets = rows.targets.view({-1, width});
  return batch;
}

}  // namespace shardline::parity
