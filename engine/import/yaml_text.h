// YAML as accelerate writes it: maps, lists and plain values.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

// Converts the text to JSON, in which all values except null, true and false are strings. Throws ConfigError for text
// that is not YAML, for anchors, aliases, tags, several documents, duplicate keys and deep nesting, and if the build
// has no libyaml.
nlohmann::json json_of_yaml(const std::string& text, const std::string& file);

}  // namespace shardline
