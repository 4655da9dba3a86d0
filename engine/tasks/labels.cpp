#include "engine/tasks/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/error.h"
#include "engine/config/rules/known_data.h"
#include "engine/config/rules/model_rules.h"
#include "engine/data/examples/prepare_examples.h"
#include "engine/tasks/task_files.h"
#include "engine/tasks/tokenised_labels.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr size_t kMostLabels = 100000;
constexpr size_t kShownLabels = 12;

std::optional<int64_t> integer_in(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// Whether a text, as CSV files have them, is a number but not an integer.
bool is_fraction(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && !integer_in(text);
}

// The labels of a column.
struct Found {
  std::set<std::string> names;
  bool lists = false, fractions = false;

  void add(const DataRow& row, const std::string& label_column) {
    const std::string column = label_column_of(row, label_column);
    const json& value = column_of(row, column, "data.label_column");
    if (value.is_null() || value == "")
      throw DataError(cat(row.where, ": '", column, "' is ", value.is_null() ? "null" : "blank",
                          "; remove rows without a label from the training data"));
    lists = lists || value.is_array();
    for (const json& label : value.is_array() ? value : json::array({value})) {
      if (value.is_array() && is_tokenised(row) && label == kNoLabel) continue;
      if (!label.is_primitive() || label.is_null())
        throw DataError(cat(row.where, ": '", column, "' must be a label or a list of labels"));
      const bool is_number = label.is_number_float() || (label.is_string() && is_fraction(label.get<std::string>()));
      if (is_number && value.is_array())
        throw DataError(cat(row.where, ": '", column, "' is a list with ", label.dump(),
                            ", but a list names labels; for a regression with several outputs, set "
                            "model.config.num_labels and problem_type \"regression\""));
      fractions = fractions || is_number;
      names.insert(label_text(label));
    }
    if (!fractions && names.size() > kMostLabels)
      throw DataError(cat(row.where, ": '", column, "' has more than ", kMostLabels, " different labels so far"));
  }

  std::vector<std::string> ordered() const {
    std::vector<std::string> all(names.begin(), names.end());
    if (std::ranges::all_of(all, [](const auto& name) { return integer_in(name).has_value(); }))
      std::ranges::sort(all, {}, [](const auto& name) { return *integer_in(name); });
    return all;
  }
};

bool has_labels(const Config& config) {
  const auto head = traits_of(config.task).head;
  return head == HeadChoice::Kind::sequence_classification || head == HeadChoice::Kind::token_classification;
}

Found labels_in(const Config& config) {
  const DataOptions& data = config.data;
  const bool trains = !data.train.empty();
  const auto& paths = trains ? data.train : data.validation;
  for (const auto& path : paths)
    if (!is_data_file(path))
      throw ConfigError(cat("/data/", trains ? "train" : "validation", ": there is no data file or folder \"", path,
                            "\", from which the labels of the task are read; name them in model.config.id2label, or "
                            "set model.config.num_labels"));
  Found found;
  for_each_row(task_files(config, trains ? DataPart::train : DataPart::validation, paths),
               [&](DataRow& row, int64_t) { found.add(row, data.label_column); });
  if (found.names.empty()) throw DataError(cat(paths.front(), ": the data has no rows"));
  return found;
}

// Returns the keys of a model's config for labels with these names, in order; without names, labels are numbers.
void set_labels(json& keys, const std::vector<std::string>& names) {
  if (names.empty()) {
    keys["num_labels"] = 1;
    if (!keys.contains("problem_type")) keys["problem_type"] = "regression";
    return;
  }
  json id2label = json::object(), label2id = json::object();
  for (const std::string& name : names) {
    const size_t id = id2label.size();
    id2label[std::to_string(id)] = name;
    label2id[name] = id;
  }
  keys["id2label"] = std::move(id2label);
  keys["label2id"] = std::move(label2id);
}

// The name of a label that a row of a known data set has; the value itself if it is none.
std::string name_in(const KnownData& data, const json& value, const DataRow& row) {
  const std::string text = label_text(value);
  if (row.is_headless)
    if (const auto found = std::ranges::find(data.labels_in_csv, text); found != data.labels_in_csv.end())
      return data.labels[found - data.labels_in_csv.begin()];
  const auto id = integer_in(text);
  return id && *id >= 0 && *id < std::ssize(data.labels) ? data.labels[*id] : text;
}

// The names that transformers gives to labels of which nothing is known.
bool is_default_name(const std::string& name) {
  return name.starts_with("LABEL_");
}

}  // namespace

std::string label_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool leaves_labels_open(const Config& config) {
  if (!has_labels(config) || config.data.format == DataFormat::memory) return false;
  // The config of a command on a model's directory has that in place of training data; the labels are the model's.
  if (!config.model.path.empty() && config.data.train == std::vector{config.model.path}) return false;
  const json& own = config.model.config;
  const auto& name = config.data.task_name;
  const bool is_right_number =
      name && own.contains("num_labels") && own["num_labels"] == known_data(*name).labels.size();
  if (own.contains("id2label") || (own.contains("num_labels") && !is_right_number)) return false;
  const auto model = described_model(config.model, head_choice(config));
  return !model || std::ranges::all_of(model->head.names, is_default_name);
}

Config with_labels_of_data(const Config& config) {
  if (!leaves_labels_open(config)) return config;
  Config labelled = config;
  json& keys = labelled.model.config;
  if (config.data.task_name) {
    set_labels(keys, known_data(*config.data.task_name).labels);
    return labelled;
  }
  const Found found = labels_in(config);
  const bool is_sequence = traits_of(config.task).head == HeadChoice::Kind::sequence_classification;
  set_labels(keys, is_sequence && found.fractions && !found.lists ? std::vector<std::string>() : found.ordered());
  if (is_sequence && found.lists && !keys.contains("problem_type")) keys["problem_type"] = "multi_label_classification";
  return labelled;
}

LabelIds::LabelIds(const Config& config, const HeadChoice& head) : names_(head.names), data_(config.data.task_name) {
  for (size_t id = 0; id < names_.size(); ++id) ids_.emplace(names_[id], id);
  are_numbered_ = std::ranges::none_of(names_, [](const auto& name) { return integer_in(name).has_value(); });
}

std::optional<int64_t> LabelIds::find(const json& value, const DataRow& row) const {
  if (!value.is_primitive() || value.is_null()) return {};
  const std::string text = data_ ? name_in(known_data(*data_), value, row) : label_text(value);
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  if (!are_numbered_) return {};
  const auto id = integer_in(text);
  return id && *id >= 0 && *id < std::ssize(names_) ? id : std::nullopt;
}

int64_t LabelIds::id_of(const json& value, const DataRow& row, const std::string& column) const {
  if (const auto id = find(value, row)) return *id;
  std::string known;
  for (size_t i = 0; i < std::min(names_.size(), kShownLabels); ++i) known += (i == 0 ? "" : ", ") + names_[i];
  if (names_.size() > kShownLabels) known += ", ...";
  throw DataError(cat(row.where, ": the label ", value.dump(), " in '", column, "' is none of the model's ",
                      names_.size(), " labels (", known, "); set model.config.id2label"));
}

}  // namespace shardline
