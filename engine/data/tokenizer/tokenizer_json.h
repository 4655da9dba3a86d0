// Readers of the two forms in which byte-level BPE tokenizers are stored.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/bpe_tokenizer.h"

namespace shardline {

class JsonValue;

// Reads a tokenizer.json. Throws a DataError that names a component and its type if it needs rules other than
// byte-level BPE.
BpeTokenizerSpec read_tokenizer_json(const std::filesystem::path& file);

// Reads vocab.json and merges.txt of GPT-2 and similar tokenizers, and added_tokens.json, special_tokens_map.json and
// tokenizer_config.json if they exist.
BpeTokenizerSpec read_vocab_and_merges(const std::filesystem::path& folder);

// Returns the eos_token that tokenizer_config.json or special_tokens_map.json in this folder names; otherwise
// <|endoftext|> if the spec has it.
std::optional<std::string> find_eos_token(const std::filesystem::path& folder, const BpeTokenizerSpec& spec);

// Checks the ids of added tokens against those of the reference library: the vocabulary's, otherwise the next free ones
// in file order. Throws DataError if the file's own ids differ.
void check_added_ids(const BpeTokenizerSpec& spec, const std::string& where);

// The objects {"token": id, ...} and ["a b", ["a", "b"], ...] of both forms.
std::unordered_map<std::string, int32_t> read_vocabulary(const JsonValue& vocab);
std::pair<std::string, std::string> split_merge(const std::string& line, const std::string& where);
int32_t token_id(const JsonValue& value);
// An added token's text and flags; `special` is the default of that flag.
AddedToken added_token(const JsonValue& object, bool special);

}  // namespace shardline
