// JSON Lines: one object per line; lines of white space are skipped.
#pragma once
#include <string_view>

namespace shardline {

// Returns the first line of `rest` and removes it from there.
std::string_view take_line(std::string_view& rest);

bool is_blank_line(std::string_view line);

}  // namespace shardline
