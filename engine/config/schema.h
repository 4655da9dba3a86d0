// A JSON schema of config files, for editors that complete and check JSON. It knows types, ranges and words of single
// keys; rules between keys are checked when a config is read.
#pragma once
#include <nlohmann/json.hpp>

namespace shardline {

nlohmann::ordered_json config_schema();

}  // namespace shardline
