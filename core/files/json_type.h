// What a JSON value must be, and the wording of mistakes.
#pragma once
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

// A word that a key accepts; "*.csv": all words with this ending. If `advice` is not empty, the word is known but not
// available, and the advice says what to use instead. other_names: names that other programs use; they are not
// accepted, but the error suggests the word.
struct JsonChoice {
  std::string value;
  std::string advice = "";
  std::vector<std::string> other_names = {};
};

// The rule that a value violates, and how to change the value; the advice may be empty.
struct JsonMistake {
  std::string rule, advice;
};

// What a value must be. Bounds are inclusive unless `below` is set; integers are exact up to 2^53.
struct JsonType {
  // numbers: a list of them; texts: one text or a list of them
  enum class Kind { boolean, integer, number, numbers, text, texts, array, object, any };
  Kind kind = Kind::any;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool below = false;                    // the maximum itself is excluded
  std::vector<JsonChoice> choices = {};  // text, texts: the only words; integer: words allowed besides integers
  bool nullable = false;                 // null is accepted and means unset

  std::string describe() const;                           // "an integer >= 1", "one of \"a\", \"b\""
  bool accepts(const nlohmann::json& value) const;        // by kind and bounds; ignores `choices`
  std::string repair(const nlohmann::json& value) const;  // how to write what was probably meant; may be empty
  // "must be ..." for a value that is not accepted. Null is accepted if the type is nullable.
  std::optional<JsonMistake> mistake(const nlohmann::json& value) const;
};

JsonType json_boolean();
JsonType json_integer(double minimum, double maximum = std::numeric_limits<int>::max());
JsonType json_number(double minimum, double maximum = std::numeric_limits<double>::infinity());
JsonType json_number_below(double minimum, double maximum);
JsonType json_numbers(double minimum);
JsonType json_text();
JsonType json_texts(std::vector<JsonChoice> choices = {});
JsonType json_choice(std::vector<JsonChoice> choices);
JsonType json_array();
JsonType json_object();
JsonType json_any();
JsonType or_null(JsonType type);

// "PLACE: rule; got VALUE; advice", where PLACE is "FILE: /pointer". A missing value or advice is omitted.
std::string json_mistake(const std::string& place, const std::string& rule, const nlohmann::json* value,
                         const std::string& advice);
std::string json_shown(const nlohmann::json& value);  // as shown in messages: shortened if it is long
std::string json_escaped(const std::string& key);     // as a part of a pointer

}  // namespace shardline
