// The two kinds of patterns in a config. Layers and units ("h.3", "h.3.attn") are selected by shell patterns for whole
// names, as in the tensor-parallel plans of transformers: * matches any text, ? one character, [0-3] and [!0-3] are
// sets, and a dot is literal. Parameters are selected by regular expressions that are searched for anywhere in a name,
// as transformers' Trainer does for weight decay. A pattern of the other kind is refused with its equivalent.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

// Both throw ConfigError("RULE; ADVICE").
void check_layer_pattern(const std::string& pattern);
void check_parameter_pattern(const std::string& pattern);

bool names_layer(const std::string& pattern, const std::string& name);

}  // namespace shardline
