// The labels that a task's data has.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/keys/options.h"
#include "engine/data/source/row_file.h"
#include "models/families/head_choice.h"

namespace shardline {

// Whether the config of a task with labels leaves it to the data which labels exist, or what their names are: neither
// model.config nor the config.json of model.path names them, apart from the default names LABEL_0, LABEL_1, ..., and
// model.config does not have their number, unless it is that of the data set that data.task_name names. The scores of a
// directory's regression need no names. Without data, and for commands on a model's directory, the labels are the
// model's.
bool leaves_labels_open(const Config& config);

// The same config with the labels that it leaves open. They are those of the data set that data.task_name names, or
// else those in data.label_column of all rows of the training data (without any, of the validation data), for which
// files are read; a tokenised row may have other columns (see label_column_of), and its elements -100 are not labels. A
// label is the text of a value: 3, "3" and true are the labels "3", "3" and "true". Then model.config contains:
// - id2label and label2id of all labels: those of the column's ClassLabel if the files have one that names them all, in
//   its order, or else those of the rows in the order of their texts, or of their numbers if all are integers or all
//   are default names; for sequence classification also problem_type "multi_label_classification" if a row has a list,
//   unless it is given;
// - for sequence classification without lists, if any value is a number that is not an integer, such as 0.5 or the text
//   "2.0": num_labels 1 instead, and problem_type "regression" unless it is given;
// - for sequence classification with multi-hot vectors: num_labels instead, and the same problem_type as with lists.
// If the model of model.path has a head for the task, the number of its labels and its problem_type stay; its default
// names stay, too, unless the data has the same number of labels, and these are not just the default names or their
// numbers.
// Throws ConfigError if a file is not there, or if all tags of "token-classification" are numbers, DataError for a row
// whose label is missing, null, blank or an object, for a list with a number that is not an integer and no multi-hot
// vector, for lists that must be meant as multi-hot vectors but are integers, and for more than 100000 labels. For
// sequence classification, if the model does not determine the labels either, also throws DataError if some labels have
// a fraction and others are not numbers, or, without problem_type, if all rows have the same label, which is not a
// number.
Config with_labels_of_data(const Config& config);

// What the head predicts: "2 classes: no, yes", with the first names of long lists. Empty if it has no labels.
std::string labels_text(const HeadChoice& head);

// The labels of a model by the values of a column.
class LabelIds {
 public:
  LabelIds(const Config& config, const HeadChoice& head);
  // The label with this name, or, unless a label's name is an integer, with this number. A number to which the row's
  // file gives a name that the model has is the label with that name. Values of a data set that data.task_name names
  // are labels of that data set, and stand for the model's label with the same name, which may be in capitals, or, if
  // the model has only default names, with the same number. Throws a DataError that names the row and its column if the
  // model does not have the label.
  int64_t id_of(const nlohmann::json& value, const DataRow& row, const std::string& column) const;

 private:
  std::optional<int64_t> find(const nlohmann::json& value, const DataRow& row, const std::string& column) const;

  std::map<std::string, int64_t> ids_;
  std::vector<std::string> names_;
  bool are_numbered_ = true;  // whether a label may be given by its number
  std::optional<DataName> data_;
};

// Whether a value says with numbers 0.0 and 1.0 which of all labels a text has, as data sets of transformers'
// multi-label models do. Integers alone would be a list of labels.
bool is_multi_hot(const nlohmann::json& value);

// A value of a column of labels as the text that names it: "3" for 3.
std::string label_text(const nlohmann::json& value);

// The number that a value or its text is; unset if it is none, or not finite.
std::optional<float> label_number(const nlohmann::json& value);

}  // namespace shardline
