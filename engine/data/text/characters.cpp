#include "engine/data/text/characters.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "engine/data/text/unicode_additions.h"

namespace shardline {
namespace {

struct Range {
  char32_t first, last;  // inclusive
};

template <size_t N>
bool is_in(const Range (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const Range& range) { return range.first <= c && c <= range.last; });
}

bool has_category(char32_t c, uint32_t categories) {
  const UChar32 code_point = c;
  return (U_MASK(u_charType(code_point)) & categories) != 0;
}

// Whether Unicode has had the character since this major version.
bool is_as_old_as(char32_t c, int version) {
  const UChar32 code_point = c;
  UVersionInfo age = {};
  u_charAge(code_point, age);
  return age[0] <= version;
}

// Whether this is a word character that is newer than ICU's tables.
bool is_new_word_character(char32_t c) {
  for (const UnicodeRange& range : unicode_additions()) {
    const std::string_view category = range.category;
    const bool word =
        category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
    if (word && range.first <= c && c <= range.last) return true;
  }
  return false;
}

// Newer than Unicode 14.
constexpr Range kNewNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11DE0, 0x11DE9},
                                 {0x11F50, 0x11F59}, {0x16130, 0x16139}, {0x16D70, 0x16D79}, {0x16FF4, 0x16FF6},
                                 {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};

struct LowerRange {
  char32_t first, last;  // inclusive
  char32_t lower;        // for the first; the others follow
};
constexpr LowerRange kNewLower[] = {{0x1C89, 0x1C89, 0x1C8A},   {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
                                    {0xA7CE, 0xA7CE, 0xA7CF},   {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
                                    {0xA7DA, 0xA7DA, 0xA7DB},   {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
                                    {0x16EA0, 0x16EB8, 0x16EBB}};

constexpr Range kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                 {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};

}  // namespace

bool is_word_character(char32_t c) {
  const UChar32 code_point = c;
  return has_category(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(code_point, UCHAR_ALPHABETIC) || u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL) ||
         is_new_word_character(c);
}

bool is_numeric(char32_t c) {
  return has_category(c, U_GC_N_MASK) || is_in(kNewNumbers, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7F);
  // Two characters had another category in Unicode 8.
  return (has_category(c, U_GC_P_MASK) && is_as_old_as(c, 8)) || c == 0x166D || c == 0x111C9;
}

bool is_mark(char32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // no longer
  if (c == 0x111C9) return false;               // not yet
  return c >= 0x300 && has_category(c, U_GC_M_MASK) && is_as_old_as(c, 9);
}

bool is_accent_of_bert(char32_t c) {
  if (c == 0x1734) return true;                                                 // no longer
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;  // not yet
  return c >= 0x300 && has_category(c, U_GC_MN_MASK) && is_as_old_as(c, 8);
}

bool is_removed_by_bert(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < ' ' || c == 0x7F;
  return c == 0xFFFD || (has_category(c, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK) && is_as_old_as(c, 8));
}

bool is_ideograph_of_bert(char32_t c) {
  return is_in(kIdeographs, c);
}

std::u32string lower_case(char32_t c) {
  if (c < 0x80) return {c >= 'A' && c <= 'Z' ? c + 0x20 : c};
  if (c == 0x130) return {'i', 0x307};
  for (const auto& [first, last, lower] : kNewLower) {
    if (first <= c && c <= last) return {lower + (c - first)};
  }
  const UChar32 code_point = c;
  const char32_t lower = u_tolower(code_point);
  return {lower};
}

}  // namespace shardline
