#include "engine/metrics/answer_tokens.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "core/error.h"

namespace shardline {
namespace {

std::string in_lower_case(std::string_view text) {
  if (std::cmp_greater(text.size(), std::numeric_limits<int32_t>::max())) {
    throw DataError(cat("an answer of ", text.size(), " bytes is too long to compare; the limit is 2 GiB"));
  }
  std::string lower;
  icu::StringByteSink<std::string> sink(&lower);
  UErrorCode status = U_ZERO_ERROR;
  icu::CaseMap::utf8ToLower("", 0, icu::StringPiece(text.data(), text.size()), sink, nullptr, status);
  if (U_FAILURE(status)) throw RunError(cat("ICU cannot convert a text to lower case: ", u_errorName(status)));
  return lower;
}

bool is_ascii_punctuation(UChar32 c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// str.isspace() of Python: it also has the four separators of ASCII.
bool is_space(UChar32 c) {
  return u_isUWhiteSpace(c) || (c >= 0x1C && c <= 0x1F);
}

// \w of Python's re; the underscore is punctuation here.
bool is_word_character(UChar32 c) {
  return u_isalpha(c) || u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool is_article(std::string_view word) {
  return word == "a" || word == "an" || word == "the";
}

}  // namespace

std::vector<std::string> answer_tokens(std::string_view text) {
  const std::string lower = in_lower_case(text);
  std::vector<std::string> tokens;
  std::string token;
  std::string word;  // the last word characters of the token, until it is known whether they are an article
  const auto end_token = [&] {
    if (!token.empty()) tokens.push_back(std::exchange(token, {}));
  };
  const auto end_word = [&] {
    if (is_article(word)) {
      end_token();
    } else {
      token += word;
    }
    word.clear();
  };
  const int64_t size = lower.size();
  for (int64_t offset = 0; offset < size;) {
    const int64_t start = offset;
    UChar32 c = 0;
    U8_NEXT_OR_FFFD(lower.data(), offset, size, c);
    const std::string_view bytes = std::string_view(lower).substr(start, offset - start);
    if (is_ascii_punctuation(c)) continue;
    if (is_word_character(c)) {
      word += bytes;
      continue;
    }
    end_word();
    if (is_space(c)) {
      end_token();
    } else {
      token += bytes;
    }
  }
  end_word();
  end_token();
  return tokens;
}

}  // namespace shardline
