#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/data/split_pattern.h"

#include <pcre2.h>

#include "core/error.h"
#include "engine/data/utf8.h"

namespace shardline {
namespace {

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

// False: no match from `start` on. Else the match is in the match data.
bool find(const pcre2_code* code, std::string_view text, size_t start, pcre2_match_data* match,
          const std::string& pattern) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int found = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, match, nullptr);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) throw DataError(cat("the split pattern ", pattern, " fails on a text: ", message_of(found)));
  return true;
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
  code_ = std::shared_ptr<void>(code, [](void* owned) { pcre2_code_free(static_cast<pcre2_code*>(owned)); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it the interpreter does the same, slower
}

void SplitPattern::split(std::string_view text, const Piece& piece) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData match(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const auto emit = [&](size_t begin, size_t end, Keep kind) {
    if (begin < end && (keep_ == Keep::all || keep_ == kind)) piece(text.substr(begin, end - begin));
  };
  size_t done = 0;
  size_t search = 0;
  while (search <= text.size() && find(code, text, search, match.get(), pattern_)) {
    const size_t* range = pcre2_get_ovector_pointer(match.get());
    const size_t begin = range[0];
    const size_t end = range[1];
    emit(done, begin, Keep::gaps);
    emit(begin, end, Keep::matches);
    done = end;
    search = end;
    if (begin == end) {  // an empty match only separates; look on behind the next character
      if (end == text.size()) break;
      next_code_point(text, search);
    }
  }
  emit(done, text.size(), Keep::gaps);
}

}  // namespace shardline
