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

// Reads model.config and the config.json of model.path. Unset if there is neither, or if that file cannot be read,
// which is reported when the model is opened.
std::optional<HfModel> described_model(const ModelOptions& options, const HeadChoice& head);

}  // namespace shardline
