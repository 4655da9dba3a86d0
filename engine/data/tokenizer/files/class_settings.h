// What the tokenizer classes of transformers change in a tokenizer.json when they open it.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shardline {

// Sets, in the content of a tokenizer.json, what its class takes from tokenizer_config.json instead: for BertTokenizer
// and DistilBertTokenizer do_lower_case (by default true), strip_accents (unset) and tokenize_chinese_chars (true) of a
// BertNormalizer; for RobertaTokenizer and GPT2Tokenizer add_prefix_space (false) of byte-level BPE; for
// RobertaTokenizer also trim_offsets (true). The defaults count if tokenizer_config.json names the class: a folder
// whose class only follows from the model may have been saved with a tokenizer that belongs to no class. Other classes
// change nothing.
void apply_class_settings(const std::filesystem::path& folder, const std::string& tokenizer_class,
                          nlohmann::json& tokenizer);

}  // namespace shardline
