// The contents of a tokenizer's files, and the tokenizer that is made from them.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/data/tokenizer/bpe_model.h"
#include "engine/data/tokenizer/steps/decoder.h"
#include "engine/data/tokenizer/steps/normalizer.h"
#include "engine/data/tokenizer/steps/post_processor.h"
#include "engine/data/tokenizer/steps/pre_tokenizer.h"
#include "engine/data/tokenizer/steps/unigram.h"
#include "engine/data/tokenizer/steps/word_piece.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/window_words.h"

namespace shardline {

struct TokenizerSpec {
  std::unordered_map<std::string, int32_t> ids;  // the ids of the model's vocabulary
  std::variant<BpeVocabulary, WordPieceOptions, UnigramVocabulary> model;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder = plain_decoder();
  bool cleans_up = false;  // clean_up_tokenization_spaces of transformers, which affects all models but BPE
  // Byte-level BPE whose words can be proven in windows of a text: the same rules, without `added`.
  std::optional<WordRules> window_rules;
  // No step of the normalizer looks across the end of a line.
  bool normalizes_lines_apart = true;
};

// The id of a token of the vocabulary or an added one.
std::optional<int32_t> find_token(const TokenizerSpec& spec, const std::string& token);

// Throws DataError if the parts contradict each other.
TokenizerPtr make_tokenizer(TokenizerSpec spec, const SpecialTokens& special, const std::string& digest);

}  // namespace shardline
