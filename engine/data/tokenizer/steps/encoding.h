// The encoding of an example's text: tokens with their places in the text.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/data/text/aligned_text.h"

namespace shardline {

// One entry for each token in all vectors.
struct Encoding {
  static constexpr int32_t kNone = -1;

  std::vector<int32_t> ids;
  std::vector<int32_t> types;
  // Bytes of the text, which begin and end with characters; of the word, if the text was given in words. For a special
  // token around the texts: [0, 0).
  std::vector<TextSpan> offsets;
  std::vector<int32_t> sequences;  // 0: of the first text; 1: of the second; kNone: a special token around them
  // The word of the text to which the token belongs, from 0 in each text: of the given words, otherwise of those that
  // the tokenizer makes; kNone as above.
  std::vector<int32_t> words;

  size_t size() const { return ids.size(); }
  // The special-tokens mask.
  bool is_special(size_t token) const { return sequences[token] == kNone; }
  void append(const Encoding& other);
  Encoding slice(size_t begin, size_t end) const;
};

// A text, or its words if it is already split.
using TextOrWords = std::variant<std::string_view, std::span<const std::string>>;

enum class TextSide { left, right };
enum class Truncation { none, longest_first, only_first, only_second };

struct ExampleOptions {
  bool add_special_tokens = true;
  // Byte-level BPE: given words have the tokens that they have after a space, as with add_prefix_space.
  bool spaces_words = false;
  Truncation truncation = Truncation::none;
  int64_t max_length = 0;  // tokens that an encoding may have, special ones included; for truncation
  // Keep what truncation cuts off as further encodings, in the order in which it is cut off: the order of the text or,
  // if the left is cut, the reverse.
  bool windows = false;
  int64_t stride = 0;  // tokens of the cut text that each window shares with the previous one
};

}  // namespace shardline
