// JSON files made by other programs: model directories, tokenizers, schedules, lines of data. Reading stops at the
// first mistake, with a DataError as in core/files/json_reader.h: "FILE: /pointer: rule; got VALUE; what to change".
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files/json_type.h"

namespace shardline {

// Throws DataError for anything but a JSON object, for duplicate keys, and for nesting deeper than any such file needs.
// The message begins with `file` and the place.
nlohmann::json parse_data_json(std::string_view text, const std::string& file);
// As above, for any JSON value.
nlohmann::json parse_data_value(std::string_view text, const std::string& file);
nlohmann::json read_data_json(const std::string& path);

// One value of a file and its place in it. The json must outlive it.
class JsonValue {
 public:
  // The root value of the file.
  JsonValue(const nlohmann::json& value, std::string file) : value_(&value), where_(std::move(file)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& where() const { return where_; }  // "FILE: /pointer"; "FILE" for the root

  // Returns the value if it is of this type; otherwise throws.
  const nlohmann::json& require(const JsonType& type) const;
  std::string text() const { return require(json_text()).get<std::string>(); }
  int integer(int minimum, int maximum = std::numeric_limits<int>::max()) const {
    return require(json_integer(minimum, maximum)).get<int>();
  }

  // For objects. A key whose value is null counts as missing.
  bool has(const std::string& key) const;
  JsonValue at(const std::string& key) const;  // the key must exist
  bool flag(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::vector<std::pair<std::string, JsonValue>> members() const;
  void require_keys_among(std::initializer_list<const char*> keys) const;

  std::vector<JsonValue> items() const;  // for arrays

  // Throws. The message shows the value unless it is an array or an object.
  [[noreturn]] void fail(const std::string& rule, const std::string& advice = "") const;

 private:
  JsonValue below(const std::string& step, const nlohmann::json& value) const;

  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace shardline
