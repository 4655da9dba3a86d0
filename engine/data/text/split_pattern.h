// Cuts text into pieces by a regular expression (PCRE2, compiled to machine code if possible).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shardline {

class SplitPattern {
 public:
  enum class Keep { all, matches, gaps };

  // A match or what lies between two matches, never empty.
  struct Piece {
    size_t begin = 0, end = 0;
    bool match = false;
    bool kept = true;
    bool closed = true;  // false: a gap that may continue after the end of the text
  };
  using Use = std::function<void(const Piece&)>;

  // `pattern` is in PCRE2's dialect. Throws DataError if it does not compile.
  SplitPattern(const std::string& pattern, Keep keep);

  // Calls `use` with the pieces of text[start, ...), in order. Lookbehinds see the text before `start`. If `ends`, the
  // text is complete. Otherwise more text follows, and only pieces that no such text can change are reported; the last
  // one may be a gap that is not closed. `text` is valid UTF-8. Throws DataError if the pattern needs more steps or
  // memory than PCRE2's limits allow.
  void split(std::string_view text, size_t start, bool ends, const Use& use) const;

  // The number of bytes before `start` that a lookbehind can see; 0 without lookbehinds.
  size_t bytes_behind() const { return bytes_behind_; }
  // Whether matches may be empty; these only separate.
  bool may_be_empty() const { return may_be_empty_; }

 private:
  std::shared_ptr<void> code_;
  std::string pattern_;
  Keep keep_;
  size_t bytes_behind_ = 0;
  bool may_be_empty_ = false;
};

}  // namespace shardline
