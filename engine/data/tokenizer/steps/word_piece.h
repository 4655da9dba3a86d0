// WordPiece: the longest token that begins a word, then the longest ones that continue it.
#pragma once
#include <string>
#include <unordered_map>

#include "engine/data/tokenizer/steps/token_model.h"

namespace shardline {

struct WordPieceOptions {
  std::string unknown = "[UNK]";  // replaces a word that cannot be split into tokens
  std::string prefix = "##";      // begins tokens that continue a word
  int max_characters = 100;       // longer words are unknown
};

class WordPieceModel final : public TokenModel {
 public:
  // Throws DataError if the vocabulary lacks the unknown token.
  WordPieceModel(std::unordered_map<std::string, int32_t> ids, const WordPieceOptions& options);

  void encode(std::string_view word, std::vector<TokenPiece>& pieces) const override;

 private:
  // The longest token that `text` begins with; its end is 0 if there is none.
  TokenPiece longest(std::string_view text, bool continues) const;

  std::unordered_map<std::string, int32_t> ids_;
  WordPieceOptions options_;
  int32_t unknown_ = 0;
  size_t longest_ = 0;  // bytes of the longest token
};

}  // namespace shardline
