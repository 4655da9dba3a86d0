// The model that a config describes, before it is opened.
#pragma once
#include <optional>

#include "engine/config/keys/options.h"
#include "models/families/families.h"

namespace shardline {

// The head that a task needs; its labels are those of the model's config.
HeadChoice head_choice(const std::string& task);
HeadChoice head_choice(const Config& config);

// The task of a model directory, according to the "architectures" in its config.json; causal-lm if these name none.
std::string task_of_directory(const std::string& directory);

// Whether the directory is the output of a run that trained an exported program: its model is the file model.pt2.
bool holds_program(const std::string& directory);

// Reads model.config and the config.json of model.path. Unset if there is neither, or if that file cannot be read,
// which is reported when the model is opened.
std::optional<HfModel> described_model(const ModelOptions& options, const HeadChoice& head);

// Whether the model's family is a traced one (models/traced/traced_family.h).
bool is_traced(const ModelOptions& options);

// What the config.json of model.path states about the labels of its head.
struct StatedLabels {
  int64_t number = 0;
  bool has_problem = false;  // whether it also states their problem_type
};
// Unset if the directory's model has no head for the task: its "architectures" name another class, as those of a
// pretrained model do, or they are missing and so are num_labels and id2label.
std::optional<StatedLabels> labels_of_directory(const Config& config);

}  // namespace shardline
