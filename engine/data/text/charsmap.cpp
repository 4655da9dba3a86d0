#include "engine/data/text/charsmap.h"

#include <unicode/brkiter.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

constexpr size_t kLongestGrapheme = 5;  // bytes; longer ones are looked up by character

// The fields of a trie's unit.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200) >> 6);
}

// Calls `use` with each user-perceived character of a valid text.
void for_each_grapheme(std::string_view text, const std::function<void(std::string_view)>& use) {
  if (std::all_of(text.begin(), text.end(), [](char byte) { return (byte & 0x80) == 0 && byte != '\r'; })) {
    for (size_t i = 0; i < text.size(); ++i) use(text.substr(i, 1));
    return;
  }
  thread_local const std::unique_ptr<icu::BreakIterator> breaks = [] {
    UErrorCode status = U_ZERO_ERROR;
    std::unique_ptr<icu::BreakIterator> made(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    if (U_FAILURE(status)) throw RunError(cat("ICU cannot find graphemes: ", u_errorName(status)));
    return made;
  }();
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UText, decltype(&utext_close)> view(utext_openUTF8(nullptr, text.data(), text.size(), &status),
                                                            utext_close);
  breaks->setText(view.get(), status);
  if (U_FAILURE(status)) throw RunError(cat("ICU cannot find graphemes: ", u_errorName(status)));
  int32_t begin = breaks->first();
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    use(text.substr(begin, end - begin));
    begin = end;
  }
}

int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
}

// Adds edits that replace a part by `with`: inserted characters come last, removed ones belong to the last one left.
void add_edits(std::vector<CharacterEdit>& edits, std::string_view part, std::string_view with) {
  const size_t before = edits.size();
  for (size_t offset = 0; offset < with.size();) edits.push_back({next_code_point(with, offset), 0});
  const int64_t made = edits.size() - before;
  const int64_t change = made - characters_in(part);
  if (change < 0 && !edits.empty()) edits.back().change += change;
  for (int64_t i = 0; i < change; ++i) edits[edits.size() - 1 - i].change = 1;
}

}  // namespace

CharsMap::CharsMap(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes.size() - sizeof size) {
    throw DataError(cat("the table of normalizations has ", bytes.size(),
                        " bytes, and the first four state that its trie has ", size, " bytes",
                        "; the trie must be within it, in whole units of four bytes"));
  }
  trie_.resize(size / sizeof(uint32_t));
  std::memcpy(trie_.data(), bytes.data() + sizeof size, size);
  normalized_ = bytes.substr(sizeof size + size);
  if (!is_valid_utf8(normalized_)) throw DataError("the table of normalizations holds invalid UTF-8");
}

uint32_t CharsMap::unit(size_t place) const {
  return place < trie_.size() ? trie_[place] : 0;
}

std::optional<std::string_view> CharsMap::find(std::string_view part) const {
  size_t place = offset_of(unit(0));
  for (const unsigned char byte : part) {
    if (byte == 0) break;
    place ^= byte;
    const uint32_t node = unit(place);
    if (label_of(node) != byte) break;
    place ^= offset_of(node);
    if (!has_leaf(node)) continue;
    const size_t begin = value_of(unit(place));
    if (begin > normalized_.size()) {
      throw DataError(cat("the table of normalizations refers to byte ", begin, " of ", normalized_.size()));
    }
    const std::string_view rest = std::string_view(normalized_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void CharsMap::apply(AlignedText& text) const {
  std::vector<CharacterEdit> edits;
  bool changed = false;
  const auto look_up = [&](std::string_view part) {
    if (edits.size() > text.longest()) return true;  // AlignedText::edit refuses them
    const auto found = find(part);
    if (!found) return false;
    changed = true;
    add_edits(edits, part, *found);
    return true;
  };
  for_each_grapheme(text.text(), [&](std::string_view grapheme) {
    if (grapheme.size() <= kLongestGrapheme && look_up(grapheme)) return;
    for (size_t offset = 0; offset < grapheme.size();) {
      const size_t begin = offset;
      const char32_t character = next_code_point(grapheme, offset);
      if (!look_up(grapheme.substr(begin, offset - begin))) edits.push_back({character, 0});
    }
  });
  if (changed) text.edit(edits);
}

}  // namespace shardline
