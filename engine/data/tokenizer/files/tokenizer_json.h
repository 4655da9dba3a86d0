// The reader of tokenizer.json, and what readers of other forms share with it.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/tokenizer_spec.h"

namespace shardline {

class JsonValue;

// tokenizer_class: see class_settings.h; empty for none. Throws a DataError that names a component and its type if the
// file needs rules that we do not have.
TokenizerSpec read_tokenizer_json(const std::filesystem::path& file, const std::string& tokenizer_class);

// Checks the ids of added tokens against those of the reference library: the vocabulary's, otherwise the next free ones
// in file order. Throws DataError if the file's own ids differ.
void check_added_ids(const TokenizerSpec& spec, const std::string& where);

// Both forms have a vocabulary {"token": id, ...} and merges: "a b" or ["a", "b"].
std::unordered_map<std::string, int32_t> read_vocabulary(const JsonValue& vocab);
std::pair<std::string, std::string> split_merge(const std::string& line, const std::string& where);
int32_t token_id(const JsonValue& value);
// An added token's text and flags; `special` is the default of that flag.
AddedToken added_token(const JsonValue& object, bool special);

}  // namespace shardline
