// JSON Lines: an object a line; lines of white space are skipped.
#pragma once
#include <string>
#include <string_view>

namespace shardline {

// The line at the front of `rest`, which then begins after it.
std::string_view take_line(std::string_view& rest);

bool is_blank_line(std::string_view line);

// The string in `column` of one line. `where` ("file:line") begins the message of the DataError for anything else.
std::string text_of_row(std::string_view line, const std::string& column, const std::string& where);

}  // namespace shardline
