// YAML as accelerate writes it: maps, lists and plain values.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

// The text as JSON, of which all values but null, true and false are texts. Throws ConfigError for what is not YAML,
// for anchors, aliases, tags, several documents, duplicate keys and deep nesting, and if the build has no libyaml.
nlohmann::json json_of_yaml(const std::string& text, const std::string& file);

}  // namespace shardline
