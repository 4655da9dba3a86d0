// Text that is made from another text by normalization, with the place of each character in that source.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

// Bytes [begin, end) of a text.
struct TextSpan {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// A character of a new text and what it stands for in the old one. 0: one character; -n: that character and the n after
// it; 1: none, because it is inserted and has the place of the character before it.
struct CharacterEdit {
  char32_t character = 0;
  int change = 0;
};

class AlignedText {
 public:
  // Reads invalid UTF-8 as Python's errors="replace" does: a U+FFFD has the place of the ill-formed part. Throws
  // DataError for texts of more than kLongest bytes.
  explicit AlignedText(std::string_view source);
  static constexpr size_t kLongest = size_t{64} << 20;

  std::string_view text() const { return text_; }
  bool empty() const { return text_.empty(); }
  // The place in the source of text()[begin, end), which is not empty.
  TextSpan source(size_t begin, size_t end) const { return {places_[begin].begin, places_[end - 1].end}; }
  TextSpan source() const { return source(0, text_.size()); }
  // Where this text begins in the source, even if it is a slice.
  uint32_t begin() const { return begin_; }

  // The bytes that text() may have: sixteen times the source's, and a few more.
  size_t longest() const { return longest_; }

  AlignedText slice(size_t begin, size_t end) const;

  // Makes the text that `edits` describe, after the removal of its first `removed` characters. Throws DataError if it
  // is longer than longest().
  void edit(std::span<const CharacterEdit> edits, size_t removed = 0);
  // Replaces text()[begin, end) by `content`, which takes the place of the last character before `end`.
  struct Replacement {
    size_t begin = 0, end = 0;
  };
  void replace(std::span<const Replacement> ranges, std::string_view content);
  // Puts `content` before the text, unless the text is empty; `content` takes the place of the first character.
  void prepend(std::string_view content);

 private:
  AlignedText() = default;
  void append(char32_t character, TextSpan place);
  void append(std::string_view characters, TextSpan place);
  void check_growth() const;

  std::string text_;
  std::vector<TextSpan> places_;  // for each byte, the place of its character
  uint32_t begin_ = 0;
  size_t longest_ = 0;  // bytes that the text may have
};

}  // namespace shardline
