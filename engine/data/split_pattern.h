// Cuts text into pieces by a regular expression (PCRE2, compiled to machine code where it can be).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shardline {

class SplitPattern {
 public:
  enum class Keep { all, matches, gaps };
  using Piece = std::function<void(std::string_view)>;

  // `pattern` in PCRE2's dialect; DataError when it does not compile.
  SplitPattern(const std::string& pattern, Keep keep);

  // Calls `piece` with the non-empty matches, the gaps between them, or both, in order. `text` is valid UTF-8.
  // DataError when the pattern needs more steps or memory than PCRE2's limits allow.
  void split(std::string_view text, const Piece& piece) const;

 private:
  std::shared_ptr<void> code_;
  std::string pattern_;
  Keep keep_;
};

}  // namespace shardline
