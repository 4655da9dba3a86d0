// JSON in a text that is itself a value: of a file, or of an argument.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

// Discarded for what is not JSON, and for more levels of nesting than parse_json takes, because copying and printing a
// value need stack for each of them.
nlohmann::json json_in_text(const std::string& text);

}  // namespace shardline
