// Unigram: of all ways to cut a word into tokens, the one with the largest sum of scores.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/data/tokenizer/steps/token_model.h"

namespace shardline {

struct UnigramVocabulary {
  std::vector<std::pair<std::string, double>> tokens;  // with their scores, by id
  std::optional<int32_t> unknown;
  bool byte_fallback = false;  // unknown text becomes its bytes' tokens <0x00> to <0xFF> if all of them exist
};

class UnigramModel final : public TokenModel {
 public:
  // Throws DataError for an unknown id outside the vocabulary.
  explicit UnigramModel(const UnigramVocabulary& vocabulary);

  void encode(std::string_view word, std::vector<TokenPiece>& pieces) const override;

 private:
  struct Token {
    std::string text;
    int32_t id;
    double score;
  };
  // A position in a word, and the best way to reach it.
  struct Place {
    double score = 0;
    size_t from = 0;
    int32_t id = 0;
    bool reached = false;
  };
  std::vector<Place> best_path(std::string_view word) const;
  // Calls use(token) with each token that `text` begins with, the shortest first.
  template <class Use>
  void for_each_prefix(std::string_view text, const Use& use) const;
  int32_t unknown() const;
  void append_unknown(std::string_view word, size_t begin, size_t end, std::vector<TokenPiece>& pieces) const;

  std::vector<Token> sorted_;                                     // by text
  std::array<std::pair<size_t, size_t>, 256> with_first_byte_{};  // ranges of sorted_
  std::unordered_map<std::string, int32_t> ids_;
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0;
  std::optional<std::array<int32_t, 256>> byte_ids_;
};

}  // namespace shardline
