#pragma once
#include <string>

#include "core/error.h"

namespace shardline {

// Makes text from an untrusted file safe for messages: replaces characters that a terminal might interpret as commands,
// except `kept`.
inline std::string plain_text(std::string text, char kept = ' ') {
  for (char& c : text)
    if ((c < ' ' || c > '~') && c != kept) c = '?';
  return text;
}

// Calls `read`, and makes the text of its errors plain, because they may quote untrusted files.
template <class Read>
auto with_plain_errors(const Read& read) try {
  return read();
} catch (const AllRanks<DataError>& error) {
  throw AllRanks<DataError>(plain_text(error.what(), '\n'));
} catch (const DataError& error) {
  throw DataError(plain_text(error.what(), '\n'));
}

}  // namespace shardline
