// The files next to a vocabulary: which tokens are added, and which ones have a role.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "engine/data/tokenizer/tokenizer_spec.h"

namespace shardline {

// The tokens' texts.
using RoleNames = std::map<SpecialToken, std::string>;

// The class of transformers that reads the folder, without "Fast": the one that tokenizer_config.json names, otherwise
// that of config.json's model_type; empty if neither file names one.
std::string tokenizer_class(const std::filesystem::path& folder);

// The roles that tokenizer_config.json and special_tokens_map.json name, in addition to `defaults` or instead of them.
RoleNames read_role_names(const std::filesystem::path& folder, RoleNames defaults);

// Adds to the spec the tokens of tokenizer_config.json, added_tokens.json and special_tokens_map.json, those of
// `roles`, which are special, and `more`, whose ids do not count. Tokens that the vocabulary lacks get the next free
// ids. Then checks the ids.
void add_tokens_of_folder(const std::filesystem::path& folder, const RoleNames& roles,
                          const std::vector<AddedToken>& more, TokenizerSpec& spec);

// Adds to the tokens of a tokenizer.json those that transformers adds from tokenizer_config.json when it opens the
// folder: the tokens of added_tokens_decoder, whose flags count instead of those in tokenizer.json, the additional
// special tokens, and the tokens with a role that the vocabulary has. Tokens with a role that it lacks, such as a pad
// token that no text contains, are left out. Then checks the ids.
void add_tokens_of_config(const std::filesystem::path& folder, TokenizerSpec& spec);

// The ids of the roles that the folder names, otherwise of tokens with usual names, such as [CLS] and <s>. Throws
// DataError if the vocabulary lacks the eos_token that the folder names.
SpecialTokens find_special_tokens(const std::filesystem::path& folder, const TokenizerSpec& spec);

// Calls `use` with a file of the folder, if it exists.
void with_json_file(const std::filesystem::path& folder, const char* name,
                    const std::function<void(const JsonValue&)>& use);

}  // namespace shardline
