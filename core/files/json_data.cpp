#include "core/files/json_data.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "core/files/regular_file.h"

namespace shardline {

nlohmann::json parse_data_value(std::string_view text, const std::string& file) try {
  JsonDocument document = parse_json(std::string(text), file);
  if (!document.problems.empty()) throw DataError(document.problems.front());
  return std::move(document.value);
} catch (const ConfigError& error) {
  throw DataError(error.what());
}

nlohmann::json parse_data_json(std::string_view text, const std::string& file) {
  nlohmann::json value = parse_data_value(text, file);
  if (!value.is_object()) throw DataError(cat(file, ": must hold a JSON object; got ", value.type_name()));
  return value;
}

nlohmann::json read_data_json(const std::string& path) {
  return parse_data_json(read_regular_file(path), path);
}

JsonValue JsonValue::below(const std::string& step, const nlohmann::json& value) const {
  return {value, cat(where_, where_.find(": /") == std::string::npos ? ": /" : "/", step)};
}

const nlohmann::json& JsonValue::require(const JsonType& type) const {
  if (const auto mistake = type.mistake(*value_))
    throw DataError(json_mistake(where_, mistake->rule, value_, mistake->advice));
  return *value_;
}

bool JsonValue::has(const std::string& key) const {
  const auto found = require(json_object()).find(key);
  return found != value_->end() && !found->is_null();
}

JsonValue JsonValue::at(const std::string& key) const {
  if (!has(key)) throw DataError(json_mistake(below(json_escaped(key), *value_).where(), "is missing", nullptr, ""));
  return below(json_escaped(key), (*value_)[key]);
}

bool JsonValue::flag(const std::string& key, bool fallback) const {
  return has(key) ? at(key).require(json_boolean()).get<bool>() : fallback;
}

std::string JsonValue::text(const std::string& key, const std::string& fallback) const {
  return has(key) ? at(key).text() : fallback;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  std::vector<std::pair<std::string, JsonValue>> members;
  for (const auto& [key, value] : require(json_object()).items())
    members.emplace_back(key, below(json_escaped(key), value));
  return members;
}

void JsonValue::require_keys_among(std::initializer_list<const char*> keys) const {
  for (const auto& [key, value] : require(json_object()).items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      below(json_escaped(key), value).fail("unknown key", "remove it");
}

std::vector<JsonValue> JsonValue::items() const {
  std::vector<JsonValue> items;
  for (const auto& value : require(json_array())) items.push_back(below(std::to_string(items.size()), value));
  return items;
}

void JsonValue::fail(const std::string& rule, const std::string& advice) const {
  throw DataError(json_mistake(where_, rule, value_->is_primitive() ? value_ : nullptr, advice));
}

}  // namespace shardline
