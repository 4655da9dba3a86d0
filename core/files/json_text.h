// JSON in a text that is itself the value of a key or an argument.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

// Returns a discarded value if the text is not JSON, or if it is nested more deeply than parse_json allows, because
// copying and printing a value need stack for each level.
nlohmann::json json_in_text(const std::string& text);

}  // namespace shardline
