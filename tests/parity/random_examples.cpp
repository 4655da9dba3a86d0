#include "tests/parity/random_examples.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "core/numbers/philox.h"
#include "engine/data/examples/microbatch_rows.h"
#include "engine/data/source/tokenised_row.h"
#include "engine/tasks/tokenised_labels.h"
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

// The example, read from a tokenised row that is padded to the length of the longest ones.
RandomExample from_padded_row(const RandomTask& task, RandomExample example) {
  using nlohmann::json;
  const auto length = std::ssize(example.ids), added = task.length - length;
  const int64_t before = task.padding == "left" ? added : 0;
  const auto column = [&](const auto& values, int64_t filler) {
    json list(std::vector<int64_t>(before, filler));
    for (const int64_t value : values) list.push_back(value);
    while (std::ssize(list) < task.length) list.push_back(filler);
    return list;
  };
  DataRow row{.where = "a row"};
  row.columns = {{"input_ids", column(example.ids, task.vocab - 1)},
                 {"token_type_ids", column(example.types, 0)},
                 {"attention_mask", column(std::vector<int64_t>(length, 1), task.padding == "counted")}};
  if (predicts_rows(task)) row.columns["labels"] = column(example.labels, kNoLabel);
  const TokenisedRow tokens = tokenised_row(row).value();
  example.ids.assign(tokens.ids.begin(), tokens.ids.end());
  example.types.assign(tokens.types.begin(), tokens.types.end());
  if (predicts_rows(task)) {
    const auto labels = word_labels(row, tokens);
    example.labels.assign(labels.begin(), labels.end());
  }
  if (task.task == "question-answering" && example.targets[0] != kNoLabel)
    for (double& target : example.targets)  // a place in the row becomes a token
      target = double(std::ranges::find(tokens.places, before + int64_t(target)) - tokens.places.begin());
  return example;
}

}  // namespace

Batch RandomExamples::batch(int64_t step, const BatchSlice& slice) {
  Batch batch{.first_sample = slice.first, .global_samples = samples_in_step(step)};
  std::vector<int64_t> ids, types, labels, ends, target_begins;
  std::vector<double> targets;
  for (int64_t sample = 0; sample < batch.global_samples; ++sample) {
    RandomExample example = example_of(task_, step, sample);
    if (task_.padding != "dynamic") example = from_padded_row(task_, std::move(example));
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
