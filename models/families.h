// The model families, by HF's model_type.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/model_spec.h"

namespace shardline {

// The description of the model that an HF config.json means. `where` names the config in messages. Throws ConfigError
// for an unknown model_type and for what the family cannot do.
ModelSpec model_spec(const nlohmann::json& hf_config, const std::string& where, bool sequence_parallel,
                     const SplitChoices& choices = {});

}  // namespace shardline
