#pragma once
#include <string>

#include "core/error.h"

namespace shardline {

// Text of a file that somebody else may have made, for messages: replaces what a terminal might obey, except this
// character.
inline std::string plain_text(std::string text, char kept = ' ') {
  for (char& c : text)
    if ((c < ' ' || c > '~') && c != kept) c = '?';
  return text;
}

// Calls `read`. Its errors may quote files that somebody else has made.
template <class Read>
auto with_plain_errors(const Read& read) try {
  return read();
} catch (const AllRanks<DataError>& error) {
  throw AllRanks<DataError>(plain_text(error.what(), '\n'));
} catch (const DataError& error) {
  throw DataError(plain_text(error.what(), '\n'));
}

}  // namespace shardline
