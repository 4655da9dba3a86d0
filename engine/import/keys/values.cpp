#include "engine/import/keys/values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/files/json_text.h"

namespace shardline {
namespace {

using nlohmann::json;
using Kind = JsonType::Kind;

constexpr double kExact = 9007199254740992.0;  // 2^53

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_nothing(const std::string& text) {
  const std::string word = lower_case(text);
  return word == "none" || word == "null";
}

// "true", "1", 1 -> true; the value itself if it is neither true nor false.
json truth(const json& given) {
  if (given == 1 || given == 0) return given == 1;
  if (!given.is_string()) return given;
  const std::string word = lower_case(given.get<std::string>());
  for (const char* one : {"true", "t", "yes", "y", "on", "1"})
    if (word == one) return true;
  for (const char* one : {"false", "f", "no", "n", "off", "0"})
    if (word == one) return false;
  return given;
}

// ".9", "3.", "+1": numbers for Python, but not in JSON. Null: not a number.
json number_of_python(const std::string& text) {
  const size_t sign = text.starts_with('+') && !text.starts_with("+-") ? 1 : 0;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + sign, end, value);
  const bool is_number = error == std::errc() && rest == end && std::isfinite(value);
  return is_number ? json(value) : json();
}

// "3", 3.0 -> 3 if an integer is wanted.
json number(const json& given, bool whole) {
  json value = given;
  if (given.is_string())
    for (const json& inside : {json_in_text(given.get<std::string>()), number_of_python(given.get<std::string>())})
      if (value.is_string() && inside.is_number()) value = inside;
  if (!whole || !value.is_number_float()) return value;
  const double real = value.get<double>();
  if (real != std::floor(real) || std::abs(real) > kExact) return value;
  const std::int64_t integer = real;
  return integer;
}

json list_of_texts(const json& given) {
  if (!given.is_string()) return given;
  const json inside = json_in_text(given.get<std::string>());
  return inside.is_array() ? inside : given;
}

// A value whose type is not known from the key.
json free_value(const json& given) {
  if (!given.is_string()) return given;
  const auto text = given.get<std::string>();
  if (const std::string word = lower_case(text); word == "true" || word == "false") return word == "true";
  if (is_nothing(text)) return nullptr;
  const json inside = json_in_text(text);
  return inside.is_discarded() ? given : inside;
}

}  // namespace

std::string plain_text(const json& given) {
  if (!given.is_string()) return given.dump();
  const auto text = given.get<std::string>();
  if (text.size() < 2 || text.front() != '"') return text;
  const json inside = json_in_text(text);
  return inside.is_string() ? inside.get<std::string>() : text;
}

json value_for(const JsonType& type, const json& given) {
  const json value = given.is_string() ? json(plain_text(given)) : given;
  if (value.is_string() && type.nullable && is_nothing(value.get<std::string>())) return nullptr;
  switch (type.kind) {
    case Kind::boolean:
      return truth(value);
    case Kind::integer:
      return number(value, /*whole=*/true);
    case Kind::number:
      return number(value, /*whole=*/false);
    case Kind::text:
      return value.is_number() || value.is_boolean() ? json(value.dump()) : value;
    case Kind::texts:
      return list_of_texts(value);
    case Kind::numbers:
    case Kind::array:
    case Kind::object:
    case Kind::any:
      return free_value(value);
  }
  return value;
}

bool is_on(const json& given) {
  return truth(plain_text(given)) == true;
}

bool is_off(const json& given) {
  const std::string text = plain_text(given);
  return given.is_null() || text.empty() || is_nothing(text) || truth(text) == false ||
         (given.is_structured() && given.empty());
}

bool is_unset(const json& given) {
  return given.is_null() || given == "null";
}

void require_utf8(const std::string& text, const std::string& source) try {
  (void)json(text).dump();
} catch (const json::exception&) {
  throw ConfigError(cat(source, ": is not UTF-8; convert it"));
}

std::string plain_name(const std::string& name) {
  std::string plain = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::ranges::replace(plain, '-', '_');
  return plain;
}

}  // namespace shardline
