#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/data/text/split_pattern.h"

#include <pcre2.h>

#include <algorithm>

#include "core/error.h"
#include "engine/data/text/utf8.h"

namespace shardline {
namespace {

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

enum class Search { match, no_match, needs_more_text };

// Looks for a match from `start` on. If more text follows, a search that reaches the last byte needs it: PCRE2 then
// reports where that attempt began, and no match begins before that place.
Search search_from(const pcre2_code* code, std::string_view text, size_t start, bool ends, pcre2_match_data* match,
                   const std::string& pattern) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint32_t options = PCRE2_NO_UTF_CHECK | (ends ? 0 : PCRE2_PARTIAL_HARD);
  int found = pcre2_match(code, subject, text.size(), start, options, match, nullptr);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code, subject, text.size(), start, options | PCRE2_NO_JIT, match, nullptr);
  }
  if (found == PCRE2_ERROR_NOMATCH) return Search::no_match;
  if (found == PCRE2_ERROR_PARTIAL) return Search::needs_more_text;
  if (found < 0) throw DataError(cat("the split pattern ", pattern, " fails on a text: ", message_of(found)));
  return Search::match;
}

// An upper bound: lookbehinds may be nested, a character has at most four bytes, and everything that looks back starts
// with a parenthesis, a backslash (\b) or a caret.
size_t lookbehind_bytes(const pcre2_code* code, const std::string& pattern) {
  uint32_t longest = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &longest);
  const auto looks_back = [](char c) { return c == '(' || c == '\\' || c == '^'; };
  return 4 * longest * std::count_if(pattern.begin(), pattern.end(), looks_back);
}

}  // namespace

SplitPattern::SplitPattern(const std::string& pattern, Keep keep) : pattern_(pattern), keep_(keep) {
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, nullptr);
  if (!code) {
    throw DataError(cat("the split pattern ", pattern, " is not valid at character ", where, ": ", message_of(error)));
  }
  code_ = std::shared_ptr<void>(code, pcre2_code_free);
  // Without machine code the interpreter does the same, but more slowly.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  bytes_behind_ = lookbehind_bytes(code, pattern);
  uint32_t may_be_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  may_be_empty_ = may_be_empty != 0;
}

void SplitPattern::split(std::string_view text, size_t start, bool ends, const Use& use) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData match(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const auto report = [&](size_t begin, size_t end, bool is_match, bool closed) {
    const bool kept = keep_ == Keep::all || (keep_ == Keep::matches) == is_match;
    if (begin < end) use({begin, end, is_match, kept, closed});
  };
  size_t done = start;
  for (size_t search = start; search <= text.size();) {
    const Search found = search_from(code, text, search, ends, match.get(), pattern_);
    const size_t* range = pcre2_get_ovector_pointer(match.get());
    if (found == Search::needs_more_text) return report(done, range[0], false, false);
    if (found == Search::no_match) break;
    const size_t begin = range[0];
    const size_t end = range[1];
    if (!ends && begin == text.size()) break;  // empty, but perhaps not with more text
    report(done, begin, false, true);
    report(begin, end, true, true);
    done = end;
    search = end;
    if (begin == end) {  // an empty match only separates; the search continues after the next character
      if (end == text.size()) break;
      next_code_point(text, search);
    }
  }
  report(done, text.size(), false, ends);
}

}  // namespace shardline
