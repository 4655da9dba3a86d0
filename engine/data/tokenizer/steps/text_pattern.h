// The pattern of a tokenizer.json's component: {"Regex": "..."} or {"String": "..."}; and how text is split at matches.
#pragma once
#include <string_view>
#include <vector>

#include "engine/data/text/aligned_text.h"
#include "engine/data/text/split_pattern.h"

namespace shardline {

class JsonValue;

// A match, or the text between two, never empty.
struct TextPart {
  size_t begin = 0, end = 0;
  bool match = false;
};

class TextPattern {
 public:
  // Throws DataError for a pattern that is not supported.
  explicit TextPattern(const JsonValue& pattern);

  std::vector<TextPart> parts_of(std::string_view text) const;
  bool may_be_empty() const { return pattern_.may_be_empty(); }

 private:
  SplitPattern pattern_;
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitBehavior read_behavior(const JsonValue& component);

// The pieces that `behavior` makes of the matches in a text and of what is between them; none is empty.
std::vector<AlignedText> split(const AlignedText& text, const std::vector<TextPart>& parts, SplitBehavior behavior);

}  // namespace shardline
