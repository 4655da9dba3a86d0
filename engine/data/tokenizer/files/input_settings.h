// Settings in a tokenizer's files besides the tokens: for the input that a text becomes, and for decoded texts.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/tokenizer_spec.h"

namespace shardline {

class JsonValue;

// The side of "truncation" in a tokenizer.json; right if it has none.
TextSide truncated_side(const JsonValue& tokenizer);

// As in transformers, truncation_side in tokenizer_config.json takes precedence over the side in tokenizer.json, all
// types are 0 if model_input_names lacks token_type_ids, and clean_up_tokenization_spaces is false if it is missing.
// tokenizer_class: decides whether types are 0 if model_input_names is missing; empty: they are not. Returns what a
// digest of the files needs in addition.
std::string apply_settings(const std::filesystem::path& folder, const std::string& tokenizer_class,
                           TokenizerSpec& spec);

}  // namespace shardline
