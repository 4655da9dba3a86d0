#include "engine/tasks/sequence_classification.h"

#include <cmath>

#include "core/error.h"
#include "engine/metrics/classification_metrics.h"
#include "engine/metrics/regression_metrics.h"
#include "engine/tasks/labels.h"

namespace shardline {
namespace {

using nlohmann::json;
using Problem = HeadChoice::Problem;

std::vector<int64_t> largest_of_rows(const at::Tensor& logits) {
  const at::Tensor best = logits.argmax(1);
  return {best.const_data_ptr<int64_t>(), best.const_data_ptr<int64_t>() + best.numel()};
}

MetricValues class_metrics(const std::vector<int64_t>& predictions, const std::vector<int64_t>& labels,
                           int64_t classes) {
  const auto scores =
      classes == 2 ? binary_scores(predictions, labels) : average_scores(predictions, labels, Average::macro);
  return {{"accuracy", accuracy(predictions, labels)},
          {"f1", scores.f1},
          {"matthews_correlation", matthews_correlation(predictions, labels)}};
}

// predictions: 1 for each label that an example has, else 0; likewise labels.
MetricValues label_set_metrics(const std::vector<int64_t>& predictions, const std::vector<int64_t>& labels,
                               int64_t width) {
  int64_t whole = 0;  // examples of which every label is right
  for (size_t i = 0; i < labels.size(); i += width)
    whole += std::equal(labels.begin() + i, labels.begin() + i + width, predictions.begin() + i);
  const double examples = labels.size() / width;
  return {{"accuracy", whole / examples}, {"f1", multi_label_scores(predictions, labels).f1}};
}

class SequenceClassification final : public LabelledTask {
 public:
  SequenceClassification(const Config& config, const HeadChoice& head, TokenizerPtr tokenizer)
      : text_(config.data.text_column),
        pair_(config.data.text_pair_column),
        label_(config.data.label_column),
        length_(config.data.sequence_length),
        head_(head),
        labels_(head),
        tokenizer_(std::move(tokenizer)) {}

  ExampleShape shape() const override {
    const bool is_class = head_.problem == Problem::single_label;
    return {.types = true,
            .targets = is_class ? TargetKind::classes : TargetKind::numbers,
            .width = is_class ? 1 : head_.labels};
  }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    const std::string& text = text_of(row, text_, "data.text_column");
    const std::string* pair = pair_ ? &text_of(row, *pair_, "data.text_pair_column") : nullptr;
    Encoding encoding = encode(text, pair, {});
    const bool is_long = std::cmp_greater(encoding.size(), length_);
    if (is_long) encoding = encode(text, pair, {.truncation = Truncation::longest_first, .max_length = length_});
    if (encoding.size() == 0) throw DataError(cat(row.where, ": '", text_, "' has no tokens"));
    Example example{.ids = std::move(encoding.ids),
                    .targets = labelled ? targets(row) : std::vector<float>(shape().width, kNoLabel)};
    example.types.assign(encoding.types.begin(), encoding.types.end());
    return {.examples = {std::move(example)}, .shortened = is_long};
  }

  std::string settings() const override {
    return cat("sequence-classification ", text_, '\n', pair_.value_or(""), '\n', label_, '\n', length_, ' ',
               tokenizer_->digest(), ' ', static_cast<int>(*head_.problem), ' ', head_.labels, ' ',
               json(head_.names).dump());
  }

  MetricValues metrics(const Predicted& predicted) const override {
    const auto& [data, logits, files] = predicted;
    SL_ASSERT(logits.size(0) == data.count && logits.size(1) == head_.labels, "logits ", logits.sizes(), " of ",
              data.count, " examples");
    std::vector<double> targets;
    for (int64_t i = data.first; i < data.first + data.count; ++i)
      for (const float target : data.set->targets(i)) targets.push_back(target);
    const at::Tensor rows = logits.contiguous();
    const std::vector<double> outputs(rows.const_data_ptr<double>(), rows.const_data_ptr<double>() + rows.numel());
    if (head_.problem == Problem::regression)
      return {{"mse", mean_squared_error(outputs, targets)},
              {"pearson", pearson_correlation(outputs, targets)},
              {"spearmanr", spearman_correlation(outputs, targets)}};
    const std::vector<int64_t> expected(targets.begin(), targets.end());
    if (head_.problem == Problem::single_label) return class_metrics(largest_of_rows(rows), expected, head_.labels);
    std::vector<int64_t> labelled;
    for (const double output : outputs) labelled.push_back(output > 0);
    return label_set_metrics(labelled, expected, head_.labels);
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    const bool is_class = head_.problem == Problem::single_label;
    const at::Tensor scores = is_class                                ? predicted.logits.softmax(1)
                              : head_.problem == Problem::multi_label ? predicted.logits.sigmoid()
                                                                      : predicted.logits;
    const at::Tensor rows = scores.contiguous();
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const std::span<const double> row(rows.const_data_ptr<double>() + i * head_.labels, head_.labels);
      if (is_class) {
        const auto best = std::ranges::max_element(row) - row.begin();
        use({{"label", head_.names[best]}, {"score", row[best]}});
      } else if (head_.problem == Problem::regression) {
        use({{"score", head_.labels == 1 ? json(row[0]) : json(row)}});
      } else {
        json labels = json::array(), all = json::object();
        for (int64_t label = 0; label < head_.labels; ++label) {
          if (row[label] > 0.5) labels.push_back(head_.names[label]);
          all[head_.names[label]] = row[label];
        }
        use({{"labels", labels}, {"scores", all}});
      }
    }
  }

 private:
  Encoding encode(std::string_view text, const std::string* pair, const ExampleOptions& options) const {
    if (!pair) return tokenizer_->encode_example(text, nullptr, options).front();
    const TextOrWords second = std::string_view(*pair);
    return tokenizer_->encode_example(text, &second, options).front();
  }

  int64_t label_id(const json& value, const DataRow& row) const {
    const int64_t id = labels_.find(value);
    if (id >= 0) return id;
    throw DataError(cat(row.where, ": the label ", value.dump(), " in '", label_, "' is none of the model's ",
                        head_.labels, " labels (", labels_.known(), "); set model.config.id2label"));
  }

  std::vector<float> targets(const DataRow& row) const {
    const json& value = column_of(row, label_, "data.label_column");
    std::vector<float> targets(shape().width);
    if (head_.problem == Problem::single_label) {
      targets[0] = label_id(value, row);
      return targets;
    }
    if (head_.problem == Problem::multi_label) {
      if (!value.is_array()) throw DataError(cat(row.where, ": '", label_, "' must be a list of labels"));
      for (const json& label : value) targets[label_id(label, row)] = 1;
      return targets;
    }
    const json numbers = value.is_array() ? value : json::array({value});
    if (std::cmp_not_equal(numbers.size(), head_.labels))
      throw DataError(
          cat(row.where, ": '", label_, "' has ", numbers.size(), " numbers, but the model predicts ", head_.labels));
    for (size_t i = 0; i < targets.size(); ++i) targets[i] = number(numbers[i], row);
    return targets;
  }

  float number(const json& value, const DataRow& row) const {
    const std::string text = label_text(value);
    char* end = nullptr;
    const float number = std::strtof(text.c_str(), &end);
    if (!text.empty() && *end == 0 && std::isfinite(number)) return number;
    throw DataError(cat(row.where, ": '", label_, "' must be a number; got ", value.dump()));
  }

  std::string text_;
  std::optional<std::string> pair_;
  std::string label_;
  int64_t length_;  // most tokens of an example
  HeadChoice head_;
  LabelIds labels_;
  TokenizerPtr tokenizer_;
};

}  // namespace

std::unique_ptr<LabelledTask> sequence_classification(const Config& config, const HeadChoice& head,
                                                      const TokenizerPtr& tokenizer) {
  return std::make_unique<SequenceClassification>(config, head, tokenizer);
}

}  // namespace shardline
