#include "core/files/json_type.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "core/files/json_text.h"

namespace shardline {
namespace {

using nlohmann::json;
using Kind = JsonType::Kind;

bool is_list_of_texts(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_string(); });
}

bool in_range(const JsonType& type, double value) {
  return value >= type.minimum && (type.below ? value < type.maximum : value <= type.maximum);
}

constexpr std::size_t kLongestShown = 100;

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// At most `bytes` bytes of the text, with no incomplete character at the end.
std::string first_bytes(const std::string& text, std::size_t bytes) {
  if (bytes >= text.size()) return text;
  while (bytes > 0 && (text[bytes] & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string number_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  if (!whole) return json(value).dump();
  const std::int64_t integer = value;
  return std::to_string(integer);
}

}  // namespace

bool JsonType::accepts(const json& value) const {
  switch (kind) {
    case Kind::any:
      return true;
    case Kind::boolean:
      return value.is_boolean();
    case Kind::integer:
      return (value.is_number_integer() && in_range(*this, value.get<double>())) ||
             (value.is_string() && !choices.empty());
    case Kind::number:
      return value.is_number() && in_range(*this, value.get<double>());
    case Kind::numbers:
      return value.is_array() && std::all_of(value.begin(), value.end(), [&](const json& one) {
               return one.is_number() && in_range(*this, one.get<double>());
             });
    case Kind::text:
      return value.is_string();
    case Kind::texts:
      return value.is_string() || is_list_of_texts(value);
    case Kind::array:
      return value.is_array();
    case Kind::object:
      return value.is_object();
  }
  return false;
}

std::string JsonType::repair(const json& value) const {
  if (value.is_null()) return "leave the key out to get its default";
  if (value.is_string()) {
    const json inside = json_in_text(value.get<std::string>());
    if (!inside.is_discarded() && !inside.is_string() && accepts(inside))
      return cat("write ", inside, " without quotes");
  }
  if (kind == Kind::integer && value.is_number()) {
    const double number = value.get<double>();
    if (number > maximum) return "the largest is " + number_text(maximum);
    if (number == std::floor(number) && in_range(*this, number)) return "write " + number_text(number);
  }
  if (kind == Kind::boolean && value.is_number()) return value == 0 ? "write false" : "write true";
  return "";
}

std::optional<JsonMistake> JsonType::mistake(const json& value) const {
  if ((value.is_null() && nullable) || accepts(value)) return {};
  return JsonMistake{"must be " + describe(), repair(value)};
}

std::string JsonType::describe() const {
  std::string text;
  switch (kind) {
    case Kind::any:
      text = "any value";
      break;
    case Kind::boolean:
      text = "true or false";
      break;
    case Kind::integer:
      text = "an integer";
      break;
    case Kind::number:
      text = "a number";
      break;
    case Kind::numbers:
      text = "a list of numbers";
      break;
    case Kind::text:
      text = choices.empty() ? "a string" : "";
      break;
    case Kind::texts:
      text = choices.empty() ? "a string or a list of strings" : "a word or a list of words from";
      break;
    case Kind::array:
      text = "an array";
      break;
    case Kind::object:
      text = "an object";
      break;
  }
  if (kind == Kind::integer || kind == Kind::number || kind == Kind::numbers) {
    const bool has_maximum = maximum < (kind == Kind::integer ? std::numeric_limits<int>::max() : 1e300);
    if (std::isfinite(minimum)) text += cat(" >= ", number_text(minimum));
    if (has_maximum) text += cat(std::isfinite(minimum) ? " and " : " ", below ? "< " : "<= ", number_text(maximum));
  }
  std::string list;
  for (const auto& choice : choices)
    if (choice.advice.empty() || kind == Kind::integer) list += cat(list.empty() ? "" : ", ", '"', choice.value, '"');
  if (!list.empty()) text += cat(kind == Kind::integer ? " or " : kind == Kind::text ? "one of " : " ", list);
  return text;
}

JsonType json_boolean() {
  return {.kind = Kind::boolean};
}
JsonType json_integer(double minimum, double maximum) {
  return {.kind = Kind::integer, .minimum = minimum, .maximum = maximum};
}
JsonType json_number(double minimum, double maximum) {
  return {.kind = Kind::number, .minimum = minimum, .maximum = maximum};
}
JsonType json_number_below(double minimum, double maximum) {
  return {.kind = Kind::number, .minimum = minimum, .maximum = maximum, .below = true};
}
JsonType json_numbers(double minimum) {
  return {.kind = Kind::numbers, .minimum = minimum};
}
JsonType json_text() {
  return {.kind = Kind::text};
}
JsonType json_texts(std::vector<JsonChoice> choices) {
  return {.kind = Kind::texts, .choices = std::move(choices)};
}
JsonType json_choice(std::vector<JsonChoice> choices) {
  return {.kind = Kind::text, .choices = std::move(choices)};
}
JsonType json_array() {
  return {.kind = Kind::array};
}
JsonType json_object() {
  return {.kind = Kind::object};
}
JsonType json_any() {
  return {};
}
JsonType or_null(JsonType type) {
  type.nullable = true;
  return type;
}

std::string json_mistake(const std::string& place, const std::string& rule, const json* value,
                         const std::string& advice) {
  std::string line = cat(place, ": ", rule);
  if (value) line += "; got " + json_shown(*value);
  if (!advice.empty()) line += "; " + advice;
  return line;
}

std::string json_shown(const json& value) {
  std::string text = dumped(value);
  if (text.size() <= kLongestShown) return text;
  if (!value.is_string()) return first_bytes(text, kLongestShown) + "...";
  const std::string& whole = value.get_ref<const std::string&>();
  std::size_t bytes = kLongestShown;
  while (dumped(first_bytes(whole, bytes)).size() > kLongestShown) --bytes;
  text = dumped(first_bytes(whole, bytes));
  text.pop_back();
  while (text.ends_with('.') || text.ends_with(' ')) text.pop_back();
  return text + "...\"";
}

std::string json_escaped(const std::string& key) {
  std::string part;
  for (const char c : key) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

}  // namespace shardline
