// The labels that a task's data has.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/keys/options.h"
#include "models/families/head_choice.h"

namespace shardline {

// Whether the config of a task with labels leaves it to the data which labels there are: neither model.config nor the
// config.json of model.path names them.
bool leaves_labels_open(const Config& config);

// The same config, in which model.config has the id2label, label2id and problem_type of the labels in the training data
// (if there is none, in the validation data), if the config leaves them open: sorted as texts, or as integers if all of
// them are. Then it reads these files. Throws ConfigError if they are not there, DataError for rows without a label.
Config with_labels_of_data(const Config& config);

// The label of a value in the data: its name, or its number if no label has this name; -1 if there is no such label.
class LabelIds {
 public:
  explicit LabelIds(const HeadChoice& head);
  int64_t find(const nlohmann::json& value) const;
  std::string known() const;  // for messages: the first names

 private:
  std::map<std::string, int64_t> ids_;
  std::vector<std::string> names_;
};

// A value of a column of labels as the text that names it: "3" for 3.
std::string label_text(const nlohmann::json& value);

}  // namespace shardline
