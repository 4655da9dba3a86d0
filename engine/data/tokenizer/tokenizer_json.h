// Readers of the two shapes in which byte-level BPE tokenizers come.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/bpe_tokenizer.h"

namespace shardline {

class JsonValue;

// A tokenizer.json. DataError, naming the component and its type, for what would need other rules than byte-level BPE.
BpeTokenizerSpec read_tokenizer_json(const std::filesystem::path& file);

// vocab.json and merges.txt of GPT-2 and its kin, with added_tokens.json, special_tokens_map.json and
// tokenizer_config.json where they are.
BpeTokenizerSpec read_vocab_and_merges(const std::filesystem::path& folder);

// The eos_token that tokenizer_config.json or special_tokens_map.json in this folder names, else <|endoftext|> where
// the spec has it.
std::optional<std::string> find_eos_token(const std::filesystem::path& folder, const BpeTokenizerSpec& spec);

// The ids that the reference library gives to added tokens: the vocabulary's, else the next free ones in file order.
// DataError when the file's own ids differ.
void check_added_ids(const BpeTokenizerSpec& spec, const std::string& where);

// The objects {"token": id, ...} and ["a b", ["a", "b"], ...] of both shapes.
std::unordered_map<std::string, int32_t> read_vocabulary(const JsonValue& vocab);
std::pair<std::string, std::string> split_merge(const std::string& line, const std::string& where);
int32_t token_id(const JsonValue& value);
// An added token's text and flags; `special` where the object does not say.
AddedToken added_token(const JsonValue& object, bool special);

}  // namespace shardline
