// From text to the words that byte-pair merges work on, as the `tokenizers` library does it: added tokens, NFC, split
// patterns, prefix space. Works on windows of a text and proves which words no text after the window can change, and at
// which places a later window can continue.
// A change of these rules needs a new TokenCacheHeader::kVersion (engine/data/cache/token_cache_header.h).
#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/text/split_pattern.h"
#include "engine/data/tokenizer/added_tokens.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace shardline {

struct SplitStep {
  std::string pattern;  // Oniguruma's dialect, as in the file
  SplitPattern::Keep keep = SplitPattern::Keep::all;
};

// The pattern of GPT-2, which a ByteLevel pre-tokenizer with use_regex implies.
extern const char* const kGpt2Pattern;

struct WordRules {
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<SplitStep> splits;   // before the byte level, in order
  bool add_prefix_space = false;   // to every piece that the splits left
  bool byte_level_pattern = true;  // then kGpt2Pattern
};

struct Word {
  std::string_view text;  // empty for an added token
  int32_t added = AddedTokenMatcher::kNone;
  bool whole = true;  // false: a part of a word
};

struct WindowWords {
  struct Mark {
    Seam seam;
    size_t words = 0;  // before it
  };
  std::vector<Word> words;
  std::vector<Mark> marks;          // ascending; not at the window's start
  std::deque<std::string> buffers;  // hold the words' text
};

class WordSplitter {
 public:
  // Whether a word may be cut between two bytes without a change of its ids.
  using MayCut = std::function<bool(char left, char right)>;

  // DataError for patterns that do not compile.
  WordSplitter(const WordRules& rules, MayCut may_cut);

  // The words of text[from.at, end), all of them when `end` is the end of the text, else those that nothing after
  // `end` can change. There are marks at all seams in [dense_from, dense_until), and at some of the others. A code
  // point begins at from.at and `end`. The text must outlive the words.
  WindowWords split(std::string_view text, const Seam& from, size_t end, size_t dense_from, size_t dense_until) const;

 private:
  friend class TextWindow;

  AddedTokenMatcher raw_added_;
  AddedTokenMatcher normalized_added_;
  bool nfc_;
  std::vector<SplitPattern> splits_;
  bool add_prefix_space_;
  std::optional<SplitPattern> byte_level_split_;
  MayCut may_cut_;
  // By level, bytes of a piece that what follows may look back at, at least 1. Level 0: text between added tokens of
  // the raw text. Then the input of each split, the input of the byte level, and words.
  std::vector<size_t> look_back_;
};

}  // namespace shardline
