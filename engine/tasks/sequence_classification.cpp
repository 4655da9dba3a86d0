#include "engine/tasks/sequence_classification.h"

#include "core/error.h"
#include "engine/config/rules/known_data.h"
#include "engine/config/rules/program_rules.h"
#include "engine/metrics/classification_metrics.h"
#include "engine/metrics/regression_metrics.h"
#include "engine/tasks/bounded_encoding.h"
#include "engine/tasks/labels.h"
#include "engine/tasks/predicted_scores.h"
#include "engine/tasks/tokenised_inputs.h"
#include "engine/tasks/tokenised_labels.h"

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

// predictions, labels: 1 for each label that an example has, else 0.
MetricValues label_set_metrics(const std::vector<int64_t>& predictions, const std::vector<int64_t>& labels,
                               int64_t width) {
  int64_t whole = 0;  // examples of which every label is right
  for (size_t i = 0; i < labels.size(); i += width)
    whole += std::equal(labels.begin() + i, labels.begin() + i + width, predictions.begin() + i);
  const double examples = labels.size() / width;
  return {{"accuracy", whole / examples}, {"f1", multi_label_scores(predictions, labels).f1}};
}

// A column by the names that it may have, and the config key that sets its name.
struct Column {
  std::vector<std::string> names;
  const char* key;

  bool is_in(const DataRow& row) const {
    return names.empty() || std::ranges::any_of(names, [&](const auto& name) { return row.columns.contains(name); });
  }
  // The first name that the row has, or else the first one.
  const std::string& name_in(const DataRow& row) const {
    const auto found = std::ranges::find_if(names, [&](const auto& name) { return row.columns.contains(name); });
    return found == names.end() ? names.front() : *found;
  }
};

class SequenceClassification final : public LabelledTask {
 public:
  SequenceClassification(const Config& config, const HeadChoice& head, TokenizerPtr tokenizer)
      : text_{{config.data.text_column}, "data.text_column"},
        pair_{{}, "data.text_pair_column"},
        label_{{config.data.label_column}, "data.label_column"},
        name_(config.data.task_name),
        length_(config.data.sequence_length),
        has_columns_(reads_columns(config)),
        inputs_(config),
        head_(head),
        labels_(config, head),
        tokenizer_(std::move(tokenizer)) {
    if (config.data.text_pair_column) pair_.names = {*config.data.text_pair_column};
    if (!name_) return;
    data_ = known_data(*name_);
    text_.names = data_->text;
    pair_.names = data_->pair;
    label_.names = data_->label;
    text_.key = pair_.key = label_.key = "data.task_name";
  }

  ExampleShape shape() const override {
    const bool is_class = head_.problem == Problem::single_label;
    return {.types = true,
            .targets = is_class ? TargetKind::classes : TargetKind::numbers,
            .width = is_class ? 1 : head_.labels};
  }

  RowExamples encode(const DataRow& row, bool labelled) const override {
    if (labelled && is_cut_off(row)) return {.shortened = true};
    check_known_columns(row, labelled);
    const std::vector<float> unknown(shape().width, kNoLabel);
    if (has_columns_)
      return {.examples = {{.ids = std::vector<int32_t>(length_), .targets = labelled ? targets(row) : unknown}}};
    if (const auto tokens = inputs_.read(row, length_)) {
      if (tokens->ids.empty()) throw DataError(cat(row.where, ": 'input_ids' has no tokens"));
      return {.examples = {{.ids = tokens->ids, .types = tokens->types, .targets = labelled ? targets(row) : unknown}}};
    }
    const TextOrWords text = std::string_view(text_of(row, text_.name_in(row), text_.key));
    std::optional<TextOrWords> pair;
    if (!pair_.names.empty()) pair = std::string_view(text_of(row, pair_.name_in(row), pair_.key));
    auto [encoding, is_shortened, _] = encode_at_most(*tokenizer_, text, pair ? &*pair : nullptr, length_);
    if (encoding.size() == 0) throw DataError(cat(row.where, ": '", text_.name_in(row), "' has no tokens"));
    Example example{.ids = std::move(encoding.ids), .targets = labelled ? targets(row) : unknown};
    example.types.assign(encoding.types.begin(), encoding.types.end());
    return {.examples = {std::move(example)}, .shortened = is_shortened};
  }

  std::string settings() const override {
    return cat("sequence-classification ", json::array({text_.names, pair_.names, label_.names}).dump(), '\n', length_,
               ' ', tokenizer_ ? tokenizer_->digest() : "", ' ', static_cast<int>(*head_.problem), ' ', head_.labels,
               ' ', json(head_.names).dump(), ' ', name_ ? word_of(*name_) : "");
  }

  MetricValues metrics(const Predicted& predicted) const override {
    const MetricValues all = all_metrics(predicted);
    if (!data_) return all;
    MetricValues chosen;
    double sum = 0;
    for (const auto& [name, value] : all) {
      if (std::ranges::find(data_->metrics, name) == data_->metrics.end()) continue;
      chosen.emplace_back(name, value);
      sum += value;
    }
    if (chosen.size() > 1) chosen.emplace_back("combined_score", sum / chosen.size());
    return chosen;
  }

  void predictions(const Predicted& predicted, const UsePrediction& use) const override {
    const at::Tensor rows = predicted.logits.contiguous();
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const std::vector<double> row = scores_of(
          {rows.const_data_ptr<double>() + i * head_.labels, size_t(head_.labels)}, score_function_of(*head_.problem));
      if (head_.problem == Problem::single_label) {
        const auto [label, score] = best_label(row, head_.names);
        use({{"label", label}, {"score", score}});
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
  MetricValues all_metrics(const Predicted& predicted) const {
    const Examples& data = predicted.data;
    const at::Tensor& logits = predicted.logits;
    SL_ASSERT(logits.size(0) == data.size() && logits.size(1) == head_.labels, "logits ", logits.sizes(), " of ",
              data.size(), " examples");
    std::vector<double> targets;
    for (int64_t i = 0; i < data.size(); ++i)
      for (const float target : data.set->targets(data[i])) targets.push_back(target);
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

  // Whether a row of a known data set has no field for a column that others of its file have, or a blank label.
  bool is_cut_off(const DataRow& row) const {
    if (!data_) return false;
    const bool has_all = text_.is_in(row) && pair_.is_in(row) && label_.is_in(row);
    return has_all ? row.columns.at(label_.name_in(row)) == "" : row.is_cut_off;
  }

  // Throws MissingColumn for a row that lacks a column of the known data set.
  void check_known_columns(const DataRow& row, bool labelled) const {
    if (!data_ || has_columns_ || is_tokenised(row)) return;
    for (const Column* column : {&text_, &pair_, &label_})
      if (!column->is_in(row) && (labelled || column != &label_)) {
        std::string names;
        for (const auto& name : column->names) names += cat(names.empty() ? "'" : " or '", name, "'");
        throw MissingColumn(cat(row.where, ": has no ", names, ", which data.task_name \"", word_of(*name_),
                                "\" needs, only ", columns_text(row),
                                "; name the files of this data set, or for others leave out data.task_name and name "
                                "their columns with data.text_column, data.text_pair_column and data.label_column"));
      }
  }

  std::vector<float> targets(const DataRow& row) const {
    const std::string label = label_column_of(row, label_.name_in(row));
    const json& value = column_of(row, label, label_.key);
    if (head_.problem == Problem::single_label) return {static_cast<float>(labels_.id_of(value, row, label))};
    if (head_.problem == Problem::multi_label) {
      if (!value.is_array()) throw DataError(cat(row.where, ": '", label, "' must be a list of labels"));
      return is_multi_hot(value) ? numbers(value, row, label) : label_set(value, row, label);
    }
    return numbers(value.is_array() ? value : json::array({value}), row, label);
  }

  // Sets 1 for each label in the list. With two labels that have no names, [0, 1] may be meant as a multi-hot vector,
  // but would set both labels, and is refused; with more labels, a multi-hot vector names one of them twice.
  std::vector<float> label_set(const json& list, const DataRow& row, const std::string& label) const {
    const std::vector<std::string> unnamed = {"LABEL_0", "LABEL_1"};
    if (head_.names == unnamed && (list == json{0, 1} || list == json{1, 0}))
      throw DataError(cat(row.where, ": '", label, "' is ", list.dump(),
                          ", which may mean both labels or only one of them; write a multi-hot vector with decimal "
                          "points, [0.0, 1.0], or the names of the labels"));
    std::vector<float> targets(head_.labels);
    for (const json& one : list) {
      float& target = targets[labels_.id_of(one, row, label)];
      if (target == 1)
        throw DataError(cat(row.where, ": '", label, "' has the label ", one.dump(),
                            " twice; a multi-hot vector has decimal points, [0.0, 1.0]"));
      target = 1;
    }
    return targets;
  }

  std::vector<float> numbers(const json& list, const DataRow& row, const std::string& label) const {
    if (std::cmp_not_equal(list.size(), head_.labels))
      throw DataError(
          cat(row.where, ": '", label, "' has ", list.size(), " numbers, but the model predicts ", head_.labels));
    std::vector<float> targets;
    for (const json& one : list) targets.push_back(number(one, row, label));
    return targets;
  }

  float number(const json& value, const DataRow& row, const std::string& label) const {
    if (const auto number = label_number(value)) return *number;
    throw DataError(cat(row.where, ": '", label, "' must be a number; got ", value.dump(),
                        head_.labels == 1 ? "; the model has num_labels 1, which means regression; for classes, name "
                                            "them in model.config.id2label"
                                          : ""));
  }

  Column text_, pair_, label_;  // pair_ has no names if samples have one text
  std::optional<DataName> name_;
  std::optional<KnownData> data_;  // the data set with this name
  int64_t length_;                 // maximum tokens of an example
  bool has_columns_;               // whether there are columns of tensors; then examples have this many rows
  TokenisedInputs inputs_;
  HeadChoice head_;
  LabelIds labels_;
  TokenizerPtr tokenizer_;  // null: not needed
};

}  // namespace

std::unique_ptr<LabelledTask> sequence_classification(const Config& config, const HeadChoice& head,
                                                      const TokenizerPtr& tokenizer) {
  return std::make_unique<SequenceClassification>(config, head, tokenizer);
}

}  // namespace shardline
