// Readers of vocabularies without a tokenizer.json. The rules are those of the class of transformers that reads the
// folder.
#pragma once
#include <filesystem>
#include <string>

#include "engine/data/tokenizer/tokenizer_spec.h"

namespace shardline {

// vocab.json and merges.txt of GPT2Tokenizer (the default if no class is named) or RobertaTokenizer.
TokenizerSpec read_vocab_and_merges(const std::filesystem::path& folder, const std::string& tokenizer_class);

// vocab.txt, one token per line, of BertTokenizer (the default if no class is named) or DistilBertTokenizer;
// tokenizer_config.json may contain do_lower_case, strip_accents and tokenize_chinese_chars.
TokenizerSpec read_vocab_txt(const std::filesystem::path& folder, const std::string& tokenizer_class);

// The .model file of SentencePiece of XLMRobertaTokenizer (Unigram) or LlamaTokenizer (BPE); tokenizer_config.json may
// contain add_prefix_space, legacy, add_bos_token and add_eos_token.
TokenizerSpec read_sentence_piece(const std::filesystem::path& file, const std::string& tokenizer_class);

}  // namespace shardline
