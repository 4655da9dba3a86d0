// Splits command lines into words, and quotes words.
#pragma once
#include <string>
#include <vector>

namespace shardline {

// Splits a text into words as a POSIX shell does: '...' is literal, in "..." a backslash escapes \ " $ and `, and
// outside of quotes a backslash escapes any character. Nothing is expanded: $HOME stays $HOME. Throws
// ConfigError("RULE; ADVICE") for a quote that is not closed or a backslash at the end.
std::vector<std::string> shell_words(const std::string& text);

// The word, quoted if necessary: shell_words and shells read it back as one word.
std::string shell_quoted(const std::string& word);

}  // namespace shardline
