// Turns words into tokens of a vocabulary.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace shardline {

// A token and the bytes [begin, end) of the word that it stands for.
struct TokenPiece {
  int32_t id = 0;
  uint32_t begin = 0, end = 0;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the tokens of a word of valid UTF-8. Throws DataError for text that has no token.
  virtual void encode(std::string_view word, std::vector<TokenPiece>& pieces) const = 0;
};

}  // namespace shardline
