#include "engine/data/source/jsonl.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_data.h"

namespace shardline {

std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string text_of_row(std::string_view line, const std::string& column, const std::string& where) {
  const nlohmann::json value = parse_data_json(line, where);
  const auto text = value.find(column);
  if (text == value.end()) {
    std::string keys;
    for (const auto& [key, ignored] : value.items()) keys += (keys.empty() ? "" : ", ") + key;
    throw DataError(cat(where, ": has no '", column, "', only {", keys, "}; set data.text_column"));
  }
  if (!text->is_string()) throw DataError(cat(where, ": '", column, "' must be a string, but is ", text->type_name()));
  return text->get<std::string>();
}

}  // namespace shardline
