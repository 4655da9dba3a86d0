// Patterns that say which of a model's parameters are trained, and which take weight decay. A pattern selects the
// parameters whose full name, or the name of one of whose tensors in Hugging Face files, it matches; all uses of a tied
// parameter count as one. `place` names the patterns in messages. All functions throw ConfigError for a pattern that
// matches nothing.
#pragma once
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "core/model/name_pattern.h"

namespace shardline {

// Turns weight decay off for the selected parameters.
void exclude_from_decay(const std::vector<NamePattern>& patterns, ModelSpec& spec, const std::string& place);

// Freezes all parameters but the selected ones, and marks the layers without a backward pass. Without patterns, what
// the spec trains stays trained. Call it before the costs of layers are determined. Throws ConfigError if no parameter
// is trained.
void freeze_others(const std::vector<NamePattern>& patterns, ModelSpec& spec, const std::string& place);

}  // namespace shardline
