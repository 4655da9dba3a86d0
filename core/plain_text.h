#pragma once
#include <string>

namespace shardline {

// Text of a file that somebody else may have made, for messages: replaces what a terminal might obey, except this
// character.
inline std::string plain_text(std::string text, char kept = ' ') {
  for (char& c : text)
    if ((c < ' ' || c > '~') && c != kept) c = '?';
  return text;
}

}  // namespace shardline
