// JSON in a text that is itself the value of a key or of an argument.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

// Returns a discarded value if the text is not JSON or is nested more deeply than parse_json allows: copying and
// printing a value need stack space for each level.
nlohmann::json json_in_text(const std::string& text);

}  // namespace shardline
