#include "engine/import/keys/values.h"

#include "tests/catch.h"

namespace shardline::values_test {

using nlohmann::json;

TEST_CASE("texts are converted to the key's type") {
  const struct {
    JsonType type;
    json given, expected;
  } cases[] = {
      {json_integer(0), "3", 3},
      {json_integer(0), "3.0", 3},
      {json_integer(0), 3.0, 3},
      {json_integer(0), "3.5", 3.5},
      {json_integer(0), "three", "three"},
      {json_integer(0), "true", "true"},
      {json_number(0), "1e-4", 1e-4},
      {json_number(0), 2, 2},
      {json_number(0), ".9", 0.9},
      {json_number(0), "3.", 3.0},
      {json_number(0), "inf", "inf"},
      {json_integer(0), "+3", 3},
      {json_integer(0), "0x10", "0x10"},
      {json_boolean(), "t", true},
      {json_boolean(), "n", false},
      {json_boolean(), "True", true},
      {json_boolean(), "0", false},
      {json_boolean(), 1, true},
      {json_boolean(), "perhaps", "perhaps"},
      {json_text(), "\"gpt2\"", "gpt2"},
      {json_text(), "gpt2", "gpt2"},
      {json_text(), 12, "12"},
      {json_text(), "\"", "\""},
      {or_null(json_text()), "None", nullptr},
      {or_null(json_integer(0)), "null", nullptr},
      {json_text(), "None", "None"},
      {json_texts(), "[\"a\", \"b\"]", {"a", "b"}},
      {json_texts(), "a", "a"},
      {json_object(), "{\"a\": 1}", {{"a", 1}}},
      {json_any(), "true", true},
      {json_any(), "None", nullptr},
      {json_any(), "checkpoint-5", "checkpoint-5"},
  };
  for (const auto& [type, given, expected] : cases) {
    INFO(type.describe() << ": " << given);
    CHECK(value_for(type, given) == expected);
  }
}

TEST_CASE("words such as true and no are read as booleans") {
  for (const json& value : {json(true), json(1), json("true"), json("True"), json("1"), json("\"true\"")})
    CHECK(is_on(value));
  for (const json& value : {json(false), json(0), json("False"), json(""), json("None"), json(nullptr), json::array()})
    CHECK((is_off(value) && !is_on(value)));
  CHECK((!is_on("auto") && !is_off("auto")));
}

TEST_CASE("names lose their leading dashes, and other dashes become underscores") {
  CHECK(plain_name("--learning-rate") == "learning_rate");
  CHECK(plain_name("-x") == "x");
  CHECK(plain_name("--") == "");
}

}  // namespace shardline::values_test
