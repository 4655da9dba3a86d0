// What the files of a tokenizer say about the input that models get of a text, beside tokens.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/tokenizer_spec.h"

namespace shardline {

class JsonValue;

// The side of "truncation" in a tokenizer.json; right if it has none.
TextSide truncated_side(const JsonValue& tokenizer);

// As transformers reads tokenizer_config.json: truncation_side counts more than the side in tokenizer.json, and without
// token_type_ids in model_input_names all types are 0. tokenizer_class: says that types are 0 if nothing names inputs;
// empty: it does not. Returns what a digest of the files needs in addition.
std::string apply_input_settings(const std::filesystem::path& folder, const std::string& tokenizer_class,
                                 TokenizerSpec& spec);

}  // namespace shardline
