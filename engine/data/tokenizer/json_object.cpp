#include "engine/data/tokenizer/json_object.h"

#include <charconv>

#include "core/error.h"

namespace shardline {
namespace {

constexpr int64_t kLargestId = 1 << 24;

}  // namespace

JsonObject::JsonObject(const nlohmann::json& value, std::string where) : value_(value), where_(std::move(where)) {
  if (!value.is_object()) throw DataError(cat(where_, ": must be an object, but is ", value.type_name()));
}

std::string JsonObject::where(const std::string& key) const {
  return cat(where_, where_.find(": /") == std::string::npos ? ": /" : "/", key);
}

bool JsonObject::has(const std::string& key) const {
  const auto found = value_.find(key);
  return found != value_.end() && !found->is_null();
}

bool JsonObject::flag(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!value_[key].is_boolean()) throw DataError(cat(where(key), ": must be true or false"));
  return value_[key].get<bool>();
}

std::string JsonObject::text(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!value_[key].is_string()) throw DataError(cat(where(key), ": must be a string"));
  return value_[key].get<std::string>();
}

const nlohmann::json& JsonObject::at(const std::string& key) const {
  if (!has(key)) throw DataError(cat(where(key), ": is missing"));
  return value_[key];
}

JsonObject JsonObject::object(const std::string& key) const {
  return {at(key), where(key)};
}

const nlohmann::json& JsonObject::array(const std::string& key) const {
  if (!at(key).is_array()) throw DataError(cat(where(key), ": must be an array"));
  return value_[key];
}

int32_t token_id(const nlohmann::json& value, const std::string& where) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kLargestId) {
    throw DataError(cat(where, ": a token id is an integer from 0 to ", kLargestId, ", not ",
                        value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  }
  return value.get<int32_t>();
}

int32_t token_id(const std::string& digits, const std::string& where) {
  int32_t id = -1;
  const char* const end = digits.data() + digits.size();
  const bool whole = std::from_chars(digits.data(), end, id).ptr == end;
  return token_id(whole ? nlohmann::json(id) : nlohmann::json(digits), where);
}

}  // namespace shardline
