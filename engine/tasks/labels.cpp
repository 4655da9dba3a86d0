#include "engine/tasks/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
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

using Problem = HeadChoice::Problem;

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

// The number in a name that transformers gives to labels without known names: "LABEL_3".
std::optional<int64_t> default_number(const std::string& name) {
  static constexpr std::string_view kPrefix = "LABEL_";
  if (!name.starts_with(kPrefix)) return {};
  const auto number = integer_in(name.substr(kPrefix.size()));
  return number && name == cat(kPrefix, *number) ? number : std::nullopt;
}

bool has_default_names(const std::vector<std::string>& names) {
  for (int64_t id = 0; id < std::ssize(names); ++id)
    if (default_number(names[id]) != id) return false;
  return true;
}

// The labels of a column.
struct Found {
  bool is_sequence = false;  // whether the task is sequence classification, where a list may be a multi-hot vector
  std::set<std::string> names;
  std::vector<std::string> stated;  // names by number that the files have; empty: none
  bool lists = false, fractions = false;
  std::string fraction,
      word;  // the first row whose label is a number with a fraction, and the first that has no number
  std::optional<size_t> vector_size;  // the size of the multi-hot vectors that all rows have
  // Whether every row so far has a list of this many integers 0 and 1.
  bool may_be_vectors = true;
  std::optional<size_t> list_size;

  void add(const DataRow& row, const std::string& label_column) {
    const std::string column = label_column_of(row, label_column);
    const json& value = column_of(row, column, "data.label_column");
    if (value.is_null() || value == "")
      throw DataError(cat(row.where, ": '", column, "' is ", value.is_null() ? "null" : "blank",
                          "; remove rows without a label from the training data"));
    if (is_sequence && add_vector(row, column, value)) return;
    lists = lists || value.is_array();
    for (const json& label : value.is_array() ? value : json::array({value})) {
      if (value.is_array() && is_tokenised(row) && label == kNoLabel) continue;
      if (!label.is_primitive() || label.is_null())
        throw DataError(cat(row.where, ": '", column, "' must be a label or a list of labels"));
      const bool is_number = label.is_number_float() || (label.is_string() && is_fraction(label.get<std::string>()));
      if (is_number && value.is_array())
        throw DataError(cat(row.where, ": '", column, "' is a list with ", label.dump(), ", but a list names labels",
                            is_sequence ? ", or states with 0.0 and 1.0 which labels a text has; for regression with "
                                          "several outputs, set model.config.num_labels and problem_type "
                                          "\"regression\""
                                        : ""));
      fractions = fractions || is_number;
      std::string& first = is_number ? fraction : word;
      if (first.empty() && (is_number || !label_number(label)))
        first = cat(row.where, ": '", column, "' is ", label.dump());
      names.insert(label_text(label));
    }
    if (!fractions && names.size() > kMostLabels)
      throw DataError(cat(row.where, ": '", column, "' has more than ", kMostLabels, " different labels so far"));
  }

  // Throws DataError if the labels of rows without lists fit no task: some are numbers with a fraction and some are not
  // numbers, or all are the same word.
  void check_classes(const std::string& path, bool has_problem) const {
    if (!is_sequence || lists || vector_size) return;
    if (!fraction.empty() && !word.empty())
      throw DataError(cat(fraction, ", a number with a fraction, which makes the task a regression, but ", word,
                          "; correct the label of one of these rows, or, if both name classes, name all classes in "
                          "model.config.id2label"));
    if (fraction.empty() && !word.empty() && !has_problem && ordered().size() == 1)
      throw DataError(
          cat(path, ": the label of all rows is the same (", word,
              "), but a classification needs at least two labels; add rows with another label, or name all labels "
              "in model.config.id2label"));
  }

  // Throws DataError if the lists can only be meant as vectors: as lists of names, all would name the same labels, or
  // one would name a label twice.
  void check_lists(const std::string& label_column) const {
    if (!is_sequence || !lists || !may_be_vectors || list_size.value_or(0) < 2) return;
    throw DataError(cat("data.label_column: '", label_column, "' has a list of ", *list_size,
                        " integers 0 and 1 in every row. Integers in a list name labels; write multi-hot vectors with "
                        "decimal points, [0.0, 1.0], or list the labels that each row has"));
  }

  // Whether these are the default names or the numbers of this many labels.
  bool are_defaults_of(int64_t labels) const {
    return std::ranges::all_of(names, [&](const auto& name) {
      const auto id = name.starts_with('L') ? default_number(name) : integer_in(name);
      return id && *id >= 0 && *id < labels;
    });
  }

  std::vector<std::string> ordered() const {
    const auto is_stated = [&](const auto& name) {
      const auto number = integer_in(name);
      return number && *number >= 0 && std::cmp_less(*number, stated.size());
    };
    if (!stated.empty() && std::ranges::all_of(names, is_stated)) return stated;
    std::vector<std::string> all(names.begin(), names.end());
    for (const auto number_of : {integer_in, default_number})
      if (std::ranges::all_of(all, [&](const auto& name) { return number_of(name).has_value(); }))
        std::ranges::sort(all, {}, [&](const auto& name) { return *number_of(name); });
    return all;
  }

 private:
  // Whether the value is a multi-hot vector; then all rows must have one, of the same size.
  bool add_vector(const DataRow& row, const std::string& column, const json& value) {
    const bool is_vector = is_multi_hot(value), is_first = names.empty() && !lists && !vector_size;
    if (is_vector ? !is_first && vector_size != value.size() : vector_size.has_value())
      throw DataError(cat(row.where, ": '", column, "' is ", value.dump(), ", but ",
                          vector_size ? cat("the rows before have multi-hot vectors of ", *vector_size, " numbers")
                                      : "the rows before have labels",
                          "; all rows must have labels of the same form"));
    const auto is_bit = [](const json& one) { return one.is_number_integer() && (one == 0 || one == 1); };
    may_be_vectors = may_be_vectors && value.is_array() && std::ranges::all_of(value, is_bit) &&
                     list_size.value_or(value.size()) == value.size();
    list_size = value.size();
    if (is_vector) vector_size = value.size();
    return is_vector;
  }
};

bool has_labels(const Config& config) {
  const auto head = traits_of(config.task).head;
  return head == HeadChoice::Kind::sequence_classification || head == HeadChoice::Kind::token_classification;
}

Found labels_in(const Config& config) {
  const DataOptions& data = config.data;
  const DataPart part = data.train.empty() ? DataPart::validation : DataPart::train;
  const auto& paths = part == DataPart::train ? data.train : data.validation;
  for (const auto& path : paths)
    if (!is_data_file(path))
      throw ConfigError(cat("/data/", part == DataPart::train ? "train" : "validation",
                            ": there is no data file or folder \"", path,
                            "\", from which the labels of the task are read; name them in model.config.id2label, or "
                            "set model.config.num_labels"));
  Found found{.is_sequence = traits_of(config.task).head == HeadChoice::Kind::sequence_classification};
  bool is_first = true;
  for_each_row(files_of(config, part), [&](DataRow& row, int64_t) {
    const auto add = [&] {
      if (found.stated.empty()) found.stated = label_names_of(row, label_column_of(row, data.label_column));
      found.add(row, data.label_column);
    };
    if (is_first)
      read_first_row(add);
    else
      add();
    is_first = false;
  });
  found.check_lists(data.label_column);
  if (found.names.empty() && !found.vector_size) throw DataError(cat(paths.front(), ": the data has no labels"));
  return found;
}

// Throws ConfigError if the tags of words are numbers: all of them would count as one kind of entity, and the scores
// would mean nothing.
void check_tags(const Config& config, const Found& found) {
  const auto is_number = [](const std::string& name) { return integer_in(name).has_value(); };
  const auto names = found.ordered();
  if (config.task != kTokenClassification || !std::ranges::all_of(names, is_number)) return;
  throw ConfigError(cat("/model/config/id2label: the tags in '", config.data.label_column, "' are numbers (",
                        names.front(), names.size() > 1 ? " to " + names.back() : "",
                        "), but the metrics of entities are computed from names; give each number its name, as in "
                        "{\"0\": \"O\", \"1\": \"B-PER\"}, or set num_labels instead to train without names"));
}

// Sets the keys of a model's config for labels with these names, in order; without names, labels are numbers.
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

// The name of a label in a row of a known data set; the value itself if it is not one of its labels.
std::string name_in(const KnownData& data, const json& value, const DataRow& row) {
  const std::string text = label_text(value);
  if (row.is_headless)
    if (const auto found = std::ranges::find(data.labels_in_csv, text); found != data.labels_in_csv.end())
      return data.labels[found - data.labels_in_csv.begin()];
  const auto id = integer_in(text);
  return id && *id >= 0 && *id < std::ssize(data.labels) ? data.labels[*id] : text;
}

std::string in_lower_case(std::string name) {
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  return name;
}

std::string first_names(const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kShownLabels); ++i) list += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShownLabels ? list + ", ..." : list;
}

}  // namespace

std::string labels_text(const HeadChoice& head) {
  const bool is_of_words = head.kind == HeadChoice::Kind::token_classification;
  if (head.kind != HeadChoice::Kind::sequence_classification && !is_of_words) return "";
  if (head.problem == Problem::regression)
    return head.labels == 1 ? "a number (regression)" : cat(head.labels, " numbers (regression)");
  const char* const what = is_of_words                            ? " tags: "
                           : head.problem == Problem::multi_label ? " labels, of which a text may have several: "
                                                                  : " classes: ";
  return cat(head.labels, what, first_names(head.names));
}

std::string label_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::optional<float> label_number(const json& value) {
  const std::string text = label_text(value);
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  return !text.empty() && *end == 0 && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool is_multi_hot(const json& value) {
  const auto is_bit = [](const json& one) { return one.is_number() && (one == 0 || one == 1); };
  return value.is_array() && std::ranges::all_of(value, is_bit) &&
         std::ranges::any_of(value, [](const json& one) { return one.is_number_float(); });
}

bool leaves_labels_open(const Config& config) {
  if (!has_labels(config) || config.data.format == DataFormat::memory) return false;
  // Commands on a model's directory name it in place of training data; the labels are then the model's.
  if (!config.model.path.empty() && config.data.train == std::vector{config.model.path}) return false;
  const json& own = config.model.config;
  const auto& name = config.data.task_name;
  if (!name && config.data.train.empty() && config.data.validation.empty()) return false;  // the labels are the model's
  const bool is_right_number =
      name && own.contains("num_labels") && own["num_labels"] == known_data(*name).labels.size();
  if (own.contains("id2label") || (own.contains("num_labels") && !is_right_number)) return false;
  // A program has as many numbers as outputs.
  const bool is_graph = config.model.is_program() || is_traced(config.model);
  if (is_graph && own.value("problem_type", json()) == "regression") return false;
  const auto model = described_model(config.model, head_choice(config));
  if (!model) return true;
  const bool has_scores = model->head.problem == Problem::regression && labels_of_directory(config);
  return !has_scores && has_default_names(model->head.names);
}

Config with_labels_of_data(const Config& config) {
  if (!leaves_labels_open(config)) return config;
  Config labelled = config;
  json& keys = labelled.model.config;
  const auto stated = labels_of_directory(config);
  if (config.data.task_name) {
    const auto& names = known_data(*config.data.task_name).labels;
    if (!stated || std::cmp_equal(stated->number, names.size())) set_labels(keys, names);
    return labelled;
  }
  const Found found = labels_in(config);
  check_tags(config, found);
  const std::vector<std::string> names = found.ordered();
  if (stated) {
    const bool are_known = !found.stated.empty() || !found.are_defaults_of(stated->number);
    if (std::cmp_equal(stated->number, names.size()) && are_known) set_labels(keys, names);
  } else if (found.vector_size) {
    keys["num_labels"] = *found.vector_size;
  } else {
    found.check_classes(config.data.train.empty() ? config.data.validation.front() : config.data.train.front(),
                        keys.contains("problem_type"));
    set_labels(keys, found.is_sequence && found.fractions && !found.lists ? std::vector<std::string>() : names);
  }
  const bool has_sets = found.is_sequence && (found.lists || found.vector_size);
  if (has_sets && !(stated && stated->has_problem) && !keys.contains("problem_type"))
    keys["problem_type"] = "multi_label_classification";
  return labelled;
}

LabelIds::LabelIds(const Config& config, const HeadChoice& head) : names_(head.names), data_(config.data.task_name) {
  for (size_t id = 0; id < names_.size(); ++id) ids_.emplace(names_[id], id);
  if (data_)  // models of known data sets may have names in capitals, which run_glue.py accepts, too
    for (size_t id = 0; id < names_.size(); ++id) ids_.emplace(in_lower_case(names_[id]), id);
  if (data_ && has_default_names(names_) && names_.size() == known_data(*data_).labels.size())
    for (size_t id = 0; id < names_.size(); ++id) ids_.emplace(known_data(*data_).labels[id], id);
  are_numbered_ = std::ranges::none_of(names_, [](const auto& name) { return integer_in(name).has_value(); });
}

std::optional<int64_t> LabelIds::find(const json& value, const DataRow& row, const std::string& column) const {
  if (!value.is_primitive() || value.is_null()) return {};
  const auto& stated = label_names_of(row, column);
  if (value.is_number_integer() && value >= 0 && value < stated.size())
    if (const auto found = ids_.find(stated[value.get<size_t>()]); found != ids_.end()) return found->second;
  const std::string text = data_ ? name_in(known_data(*data_), value, row) : label_text(value);
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  if (!are_numbered_) return {};
  const auto id = integer_in(text);
  return id && *id >= 0 && *id < std::ssize(names_) ? id : std::nullopt;
}

int64_t LabelIds::id_of(const json& value, const DataRow& row, const std::string& column) const {
  if (const auto id = find(value, row, column)) return *id;
  throw DataError(cat(row.where, ": the label ", value.dump(), " in '", column, "' is not one of the model's ",
                      names_.size(), " labels (", first_names(names_), "); set model.config.id2label"));
}

}  // namespace shardline
