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

// Whether the config of a task with labels leaves it to the data which labels there are: neither model.config nor the
// config.json of model.path names them, nor their number, unless it is that of the data set that data.task_name names.
bool leaves_labels_open(const Config& config);

// The same config, in which model.config has the id2label, label2id and problem_type of the labels that data.task_name
// has, or else of those in the training data (if there is none, in the validation data), if the config leaves them
// open: sorted as texts, or as integers if all of them are. Reads files only in the second case. Throws ConfigError if
// they are not there, DataError for rows without a label.
Config with_labels_of_data(const Config& config);

// The labels of a model by the values of a column.
class LabelIds {
 public:
  LabelIds(const Config& config, const HeadChoice& head);
  // The label with this name, or with this number if no label has this name. Values of a data set that data.task_name
  // names are labels of that data set, and the model's label with the same name is meant. Throws DataError if there is
  // no such label; it names the row and its column.
  int64_t id_of(const nlohmann::json& value, const DataRow& row, const std::string& column) const;

 private:
  std::optional<int64_t> find(const nlohmann::json& value, const DataRow& row) const;

  std::map<std::string, int64_t> ids_;
  std::vector<std::string> names_;
  std::optional<DataName> data_;
};

// A value of a column of labels as the text that names it: "3" for 3.
std::string label_text(const nlohmann::json& value);

}  // namespace shardline
