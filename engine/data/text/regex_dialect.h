// Split patterns of tokenizer.json are written for Oniguruma; this writes them for PCRE2.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

// The same pattern for PCRE2 with UTF and UCP: \s, \d and \p{general category} are spelled out where the two engines or
// their Unicode versions differ. DataError, naming the construct, for what has another meaning there and is not
// rewritten (\w \b \h ^ $ scripts, nested classes, ...).
std::string pcre2_pattern(std::string_view oniguruma);

// A pattern that matches exactly this text.
std::string literal_pattern(std::string_view text);

}  // namespace shardline
