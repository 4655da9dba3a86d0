// The two kinds of patterns in a config. Layers and units ("h.3", "h.3.attn") are named by shell patterns for whole
// names, as in the tensor-parallel plans of transformers: * any text, ? a character, [0-3] and [!0-3] sets; a dot is a
// dot. Parameters are named by regular expressions that are found anywhere in a name, as where transformers' Trainer
// leaves out weight decay. What was written in the other kind is refused with what it would be in the right one.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

// Both throw ConfigError("RULE; ADVICE").
void check_layer_pattern(const std::string& pattern);
void check_parameter_pattern(const std::string& pattern);

bool names_layer(const std::string& pattern, const std::string& name);

}  // namespace shardline
