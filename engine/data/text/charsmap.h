// SentencePiece's table of normalizations, which XLM-R and similar tokenizers have. It maps strings to their
// replacements in a double-array trie.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/text/aligned_text.h"

namespace shardline {

class CharsMap {
 public:
  // `bytes`: the size of the trie in bytes, the trie, the normalizations, each with a zero byte at its end. Throws
  // DataError if the sizes contradict each other.
  explicit CharsMap(std::string_view bytes);

  // Looks up each grapheme of at most five bytes, otherwise its characters.
  void apply(AlignedText& text) const;

 private:
  // The replacement of the shortest prefix of `part` that is in the table.
  std::optional<std::string_view> find(std::string_view part) const;
  uint32_t unit(size_t place) const;  // 0 beyond the trie

  std::vector<uint32_t> trie_;
  std::string normalized_;
};

}  // namespace shardline
