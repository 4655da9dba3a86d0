// Tokens that are searched for in the text before anything else is done with it: <|endoftext|>, and tokens that a user
// has added.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardline {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool single_word = false;  // matches only if no word character is next to it
  bool normalized = false;   // searched for in the normalized text
};

class AddedTokenMatcher {
 public:
  static constexpr int32_t kNone = -1;

  struct Piece {
    size_t begin = 0, end = 0;
    int32_t id = kNone;  // an added token's id; kNone for the text between tokens, which is never empty
    bool closed = true;  // false: text that may continue after the end of the searched text
  };
  using Use = std::function<void(const Piece&)>;
  // Open intervals of the text in which no new search may start, because it would find other tokens.
  using Intervals = std::vector<std::pair<size_t, size_t>>;

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Calls `use` for every added token of text[start, ...) and for all text between them, in order. The leftmost token
  // wins, and of several at one place the longest. `text` is valid UTF-8; single_word sees the text before `start`. If
  // `ends`, the text is complete. Otherwise more text follows, and only what no such text can change is reported.
  // Intervals are appended to `unbroken` before the piece that contains them is reported.
  void split(std::string_view text, size_t start, bool ends, Intervals& unbroken, const Use& use) const;

  // The number of bytes before `start` that the search may read.
  size_t bytes_behind() const { return bytes_behind_; }

 private:
  // Returns the token at text[offset], or null; sets `unsure` if that depends on what follows the text.
  const AddedToken* match_at(std::string_view text, size_t offset, bool ends, bool& unsure) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
  bool empty_ = true;
  bool any_lstrip_ = false;
  bool any_begins_with_space_ = false;
  size_t bytes_behind_ = 0;
};

}  // namespace shardline
