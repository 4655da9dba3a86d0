// Splits text into the words on which byte-pair merges work, as the `tokenizers` library does: added tokens, NFC, split
// patterns, prefix space. Works on windows of a text, and proves which words no text after the window can change and at
// which places a later window can continue. A change of these rules needs a new TokenCacheHeader::kVersion
// (engine/data/cache/token_cache_header.h).
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

struct WordRules {
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<SplitStep> splits;   // before the byte level, applied in order
  bool add_prefix_space = false;   // added to every piece that the splits return
  bool byte_level_pattern = true;  // then applies kGpt2Pattern
};

struct Word {
  std::string_view text;  // empty for an added token
  int32_t added = AddedTokenMatcher::kNone;
  bool whole = true;  // false: a part of a word
};

struct WindowWords {
  struct Mark {
    Seam seam;
    size_t words = 0;  // the number of words before it
  };
  std::vector<Word> words;
  std::vector<Mark> marks;          // ascending; not at the window's start
  std::deque<std::string> buffers;  // contain the words' text
};

class WordSplitter {
 public:
  // Whether a word may be cut between two bytes without changing its ids.
  using MayCut = std::function<bool(char left, char right)>;

  // Throws DataError for patterns that do not compile.
  WordSplitter(const WordRules& rules, MayCut may_cut);

  // Returns the words of text[from.offset, end): all of them if `end` is the end of the text, otherwise those that
  // nothing after `end` can change. All seams in [dense_from, dense_until) are marked, and some of the others.
  // from.offset and `end` are at the beginning of a code point. The text must outlive the words.
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
  // By level, how many bytes of a piece later text may look back at; at least 1. Level 0 is text between added tokens
  // of the raw text. Then follow the input of each split, the input of the byte level, and words.
  std::vector<size_t> look_back_;
};

}  // namespace shardline
