// Configs that are complete except for the section `training` and additions to `data`.
#pragma once
#include <string>

#include "core/error.h"
#include "engine/config/config.h"

namespace shardline {

inline Config config_with(const nlohmann::json& training, const nlohmann::json& data = nlohmann::json::object()) {
  nlohmann::json file = {{"model", {{"config", {{"model_type", "gpt2"}}}}},
                         {"data", {{"train", "text.txt"}, {"tokenizer", "bytes"}}},
                         {"training", training},
                         {"output_dir", "out"}};
  file["data"].update(data);
  return parse_config(file.dump(), "run.json");
}

// Returns the mistakes in such a config; empty if there are none.
inline std::string mistake_in(const nlohmann::json& training, const nlohmann::json& data = nlohmann::json::object()) {
  try {
    config_with(training, data);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace shardline
