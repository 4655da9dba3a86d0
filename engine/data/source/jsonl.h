// JSON Lines: one object per line; lines of white space are skipped.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

// Returns the first line of `rest` and removes it from there.
std::string_view take_line(std::string_view& rest);

bool is_blank_line(std::string_view line);

// Returns the string in `column` of one line. For anything else throws a DataError whose message begins with `where`
// ("file:line").
std::string text_of_row(std::string_view line, const std::string& column, const std::string& where);

}  // namespace shardline
