// The meaning of values in job definitions for the config's keys. Hyperparameters are texts ("3", "true", "\"gpt2\"").
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "core/files/json_type.h"

namespace shardline {

// Converts a value to the type of a key. A value that cannot be converted stays as it is, and the type refuses it.
nlohmann::json value_for(const JsonType& type, const nlohmann::json& given);

// The text of a value: without its quotes if it is JSON in a text.
std::string plain_text(const nlohmann::json& given);

// Whether a value turns something on: true, "true", "True", "1", 1.
bool is_on(const nlohmann::json& given);
// Whether it turns something off, or is null, "None" or empty.
bool is_off(const nlohmann::json& given);

// Whether a value is null: in JSON, or as SageMaker's library writes None into the text of a hyperparameter.
bool is_unset(const nlohmann::json& given);

// Throws ConfigError for a text that is not UTF-8, as all JSON is. `source` is its name in the message.
void require_utf8(const std::string& text, const std::string& source);

// The name of a setting in Python: "learning_rate" for "--learning-rate".
std::string plain_name(const std::string& name);

}  // namespace shardline
