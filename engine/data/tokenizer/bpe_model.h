// Byte-pair merges, which turn the bytes or characters of a word into token ids.
#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/data/tokenizer/steps/token_model.h"

namespace shardline {

// The content of a tokenizer's files besides the ids of tokens.
struct BpeVocabulary {
  // Tokens are written in the byte-level alphabet, and words are merged from bytes; otherwise from characters.
  bool byte_level = true;

  std::vector<std::pair<std::string, std::string>> merges;  // best first
  bool byte_fallback = false;          // characters without a token become the tokens of their bytes, <0x00> to <0xFF>
  std::optional<std::string> unknown;  // represents bytes or characters that have no token
  bool fuse_unknown = false;           // one unknown token for consecutive ones
  bool ignore_merges = false;          // a word that is a token becomes that token, whatever the merges
};

class BpeModel final : public TokenModel {
 public:
  // Throws DataError for a merge or an unknown token that the vocabulary lacks.
  BpeModel(const std::unordered_map<std::string, int32_t>& ids, const BpeVocabulary& vocabulary);

  // Appends the ids of a word, or of a part of a word if `whole` is false. Each thread caches words. Throws DataError
  // for a byte or a character without a token if the vocabulary has no unknown token.
  void encode(std::string_view word, bool whole, std::vector<int32_t>& ids) const;
  void encode(std::string_view word, std::vector<TokenPiece>& pieces) const override;

  // For a byte-level vocabulary: whether no token contains these two bytes next to each other. Then a word with this
  // pair may be cut between them, and the ids of its parts are its ids.
  bool never_joined(char left, char right) const { return never_joined_[pair_of_bytes(left, right)]; }

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  static size_t pair_of_bytes(unsigned char left, unsigned char right) { return size_t{left} << 8 | right; }
  void find_never_joined(const BpeVocabulary& vocabulary);
  std::vector<int32_t> whole_or_merged(std::string_view word) const;
  struct Symbol;
  std::vector<Symbol> merged(std::string_view word) const;
  std::vector<Symbol> symbols(std::string_view word) const;
  static void append_ids(const std::vector<Symbol>& symbols, std::vector<int32_t>& ids);
  int32_t id_of(std::string_view unit) const;
  [[noreturn]] void refuse_unknown(std::string_view unit) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  uint64_t instance_;  // identifies the model whose words a thread caches
  bool byte_level_;
  // The ids of single bytes; without byte_level_, those of the byte tokens, if characters fall back to them.
  std::array<int32_t, 256> byte_ids_;
  bool byte_fallback_;
  std::unordered_map<char32_t, int32_t> character_ids_;
  std::optional<int32_t> unknown_;
  bool fuse_unknown_;
  std::unordered_map<uint64_t, Merge> merges_;            // by (left id, right id)
  std::unordered_map<std::string, int32_t> whole_words_;  // by bytes; only for ignore_merges
  std::bitset<1 << 16> never_joined_;
};

}  // namespace shardline
