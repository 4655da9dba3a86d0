// Settings in a tokenizer's files for the input that models get for a text, besides the tokens.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/tokenizer_spec.h"

namespace shardline {

class JsonValue;

// The side of "truncation" in a tokenizer.json; right if it has none.
TextSide truncated_side(const JsonValue& tokenizer);

// As in transformers, truncation_side in tokenizer_config.json takes precedence over the side in tokenizer.json, and
// all types are 0 if model_input_names lacks token_type_ids. tokenizer_class: decides whether types are 0 if nothing
// names inputs; empty: they are not. Returns what a digest of the files needs in addition.
std::string apply_input_settings(const std::filesystem::path& folder, const std::string& tokenizer_class,
                                 TokenizerSpec& spec);

}  // namespace shardline
