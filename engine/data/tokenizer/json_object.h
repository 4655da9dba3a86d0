// Typed reading of the JSON files of tokenizers, with the file's name and the place in every message.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace shardline {

// One object of a JSON file and its place ("dir/tokenizer.json: /model"). Missing or null keys give the fallback; a
// value of another kind is a DataError naming the place.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& value, std::string where);

  bool has(const std::string& key) const;  // and is not null
  bool flag(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  const nlohmann::json& at(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  const nlohmann::json& array(const std::string& key) const;
  const nlohmann::json& value() const { return value_; }
  const std::string& where() const { return where_; }
  std::string where(const std::string& key) const;

 private:
  const nlohmann::json& value_;
  std::string where_;
};

// A token id: an integer from 0 to 2^24.
int32_t token_id(const nlohmann::json& value, const std::string& where);
int32_t token_id(const std::string& digits, const std::string& where);

}  // namespace shardline
