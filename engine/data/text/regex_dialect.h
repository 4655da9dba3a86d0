// Split patterns of tokenizer.json are written for Oniguruma; this translates them for PCRE2.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

// Returns the same pattern for PCRE2 with UTF and UCP: \s, \d and \p{general category} are spelled out where the two
// engines or their Unicode versions differ. Throws DataError for a construct that has another meaning in PCRE2 and is
// not rewritten (\w \b \h ^ $ (* scripts, nested classes, ...), which the error names, and for a pattern of more than
// 4096 bytes.
std::string pcre2_pattern(std::string_view oniguruma);

// A pattern that matches exactly this text.
std::string literal_pattern(std::string_view text);

}  // namespace shardline
