// The model that a config describes, before it is opened.
#pragma once
#include <optional>

#include "engine/config/keys/options.h"
#include "models/families/families.h"

namespace shardline {

// From model.config and the config.json of model.path. Unset where there is neither, or where that file cannot be read,
// which is said when the model is opened.
std::optional<HfModel> described_model(const ModelOptions& options);

}  // namespace shardline
