// Patterns that select which of a model's parameters are trained, or which are subject to weight decay. They select a
// parameter if one of them matches its full name, or if they match the names of all its tensors in Hugging Face files;
// all uses of a tied parameter count as one. `place` names the patterns in messages. All functions throw ConfigError
// for a pattern that matches nothing, and if only some of a parameter's tensors match.
#pragma once
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "core/model/name_pattern.h"

namespace shardline {

// Disables weight decay for the selected parameters.
void exclude_from_decay(const std::vector<NamePattern>& patterns, ModelSpec& spec, const std::string& place);

// Freezes all but the selected parameters, and marks the layers without a backward pass. Without patterns, the
// parameters that the spec trains remain trained. Call it before the costs of layers are determined. Throws ConfigError
// if no parameter is trained.
void freeze_others(const std::vector<NamePattern>& patterns, ModelSpec& spec, const std::string& place);

}  // namespace shardline
