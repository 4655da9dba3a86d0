#include "engine/data/tokenizer/steps/text_pattern.h"

#include <algorithm>

#include "core/files/json_data.h"
#include "engine/data/text/regex_dialect.h"

namespace shardline {
namespace {

std::string pcre2_of(const JsonValue& pattern) {
  if (pattern.has("Regex")) return pcre2_pattern(pattern.text("Regex", ""));
  if (pattern.has("String")) return literal_pattern(pattern.text("String", ""));
  pattern.fail("must have a Regex or a String");
}

// Joins the first match of each run of matches to the part before it, in the order of `parts`.
std::vector<TextPart> merged(const std::vector<TextPart>& parts) {
  std::vector<TextPart> pieces;
  bool after_match = false;
  for (const TextPart& part : parts) {
    if (part.match && !after_match && !pieces.empty()) {
      pieces.back() = {std::min(pieces.back().begin, part.begin), std::max(pieces.back().end, part.end)};
    } else {
      pieces.push_back(part);
    }
    after_match = part.match;
  }
  return pieces;
}

std::vector<TextPart> pieces_of(std::vector<TextPart> parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::removed:
      std::erase_if(parts, [](const TextPart& part) { return part.match; });
      break;
    case SplitBehavior::merged_with_previous:
      return merged(parts);
    case SplitBehavior::merged_with_next:
      std::reverse(parts.begin(), parts.end());
      parts = merged(parts);
      std::reverse(parts.begin(), parts.end());
      break;
    case SplitBehavior::contiguous: {
      std::vector<TextPart> runs;
      for (const TextPart& part : parts) {
        if (!runs.empty() && runs.back().match == part.match) {
          runs.back().end = part.end;
        } else {
          runs.push_back(part);
        }
      }
      return runs;
    }
  }
  return parts;
}

}  // namespace

TextPattern::TextPattern(const JsonValue& pattern) : pattern_(pcre2_of(pattern), SplitPattern::Keep::all) {}

std::vector<TextPart> TextPattern::parts_of(std::string_view text) const {
  std::vector<TextPart> parts;
  pattern_.split(text, 0, true, [&](const SplitPattern::Piece& piece) {
    parts.push_back({piece.begin, piece.end, piece.match});
  });
  return parts;
}

SplitBehavior read_behavior(const JsonValue& component) {
  const std::string name = component.text("behavior", "none");
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  component.at("behavior").fail("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::vector<AlignedText> split(const AlignedText& text, const std::vector<TextPart>& parts, SplitBehavior behavior) {
  std::vector<AlignedText> pieces;
  for (const TextPart& piece : pieces_of(parts, behavior)) pieces.push_back(text.slice(piece.begin, piece.end));
  return pieces;
}

}  // namespace shardline
