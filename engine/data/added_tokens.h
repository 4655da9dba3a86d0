// Tokens that are found in the text before anything else happens to it: <|endoftext|> and what a user added.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool single_word = false;  // only where no word character stands beside it
  bool normalized = false;   // looked for in the normalized text
};

class AddedTokenMatcher {
 public:
  static constexpr int32_t kNone = -1;
  using Piece = std::function<void(std::string_view text, int32_t id)>;

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Calls `piece` for every added token (with its id) and all non-empty text between them (kNone), in order. The
  // leftmost token wins, of several at one place the longest. `text` is valid UTF-8.
  void split(std::string_view text, const Piece& piece) const;

 private:
  const AddedToken* match_at(std::string_view text, size_t at) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
  bool empty_ = true;
};

}  // namespace shardline
