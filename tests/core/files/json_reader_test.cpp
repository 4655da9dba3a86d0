#include "core/files/json_reader.h"

#include "core/error.h"
#include "core/files/json_text.h"

#include "tests/catch.h"

namespace shardline::json_reader_test {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// The messages that result from reading {"key": VALUE} as this type.
std::string reading(const std::string& value, const JsonType& type) {
  return message_of([&] {
    const JsonDocument document = parse_json("{\"key\": " + value + "}", "f");
    JsonReader reader(document);
    reader.find("key", type);
    reader.throw_problems();
  });
}

}  // namespace

TEST_CASE("Invalid JSON is refused, and the error states the position", "[json_reader]") {
  const auto parsing = [](const std::string& text) { return message_of([&] { parse_json(text, "a.json"); }); };
  CHECK_THAT(parsing("{\n  \"a\": nope\n}"), StartsWith("a.json:2:9: not JSON: "));
  CHECK_THAT(parsing("{\"a\": 1,\n // why\n \"b\": 2}"), StartsWith("a.json:2:2: ") && Contains("no comments"));
  CHECK_THAT(parsing("{\"a\": /* x */ 1}"), Contains("no comments"));
  CHECK_THAT(parsing("{\"a\": 1,}"), StartsWith("a.json:1:9: ") && Contains("comma"));
  CHECK_THAT(parsing("{'a': 1}"), Contains("double quotes"));
  CHECK_THAT(parsing("{\"a\": 1} x"), StartsWith("a.json:1:10: "));
  CHECK(parsing("") == "a.json: the file is empty");
  CHECK_THAT(parsing("{\"a\": 1e999}"), StartsWith("a.json:1:") && Contains("1e999"));
  CHECK_THAT(parsing("{\"a\": NaN}"), StartsWith("a.json:1:7: "));
  CHECK_THAT(parsing("{\"a\": \"\xff\"}"), StartsWith("a.json:1:"));
  CHECK_THAT(parsing(std::string(100000, '[')), Contains("levels of nesting"));
  const std::string of_long_text = parsing("{\"" + std::string(1 << 20, 'x'));
  CHECK(of_long_text.size() < 300);
  CHECK_THAT(of_long_text, Contains("missing closing quote; last read: '\"xxx") && EndsWith("expected string literal"));
  CHECK_THAT(message_of([] { read_json_file("/nowhere/at.json"); }), StartsWith("/nowhere/at.json: cannot read"));
}

TEST_CASE("Keys given twice are found anywhere in a document", "[json_reader]") {
  const JsonDocument document =
      parse_json(R"({"a": {"x": 1, "x": 2}, "list": [0, {"y/z": [1], "y/z": 3}], "a": 5})", "f");
  REQUIRE(document.problems.size() == 3);
  CHECK(document.problems[0] == "f: /a/x: the key is given twice; first 1, then 2; keep one");
  CHECK_THAT(document.problems[1], StartsWith("f: /list/1/y~1z: the key is given twice; first [1], then 3"));
  CHECK_THAT(document.problems[2], StartsWith("f: /a: the key is given twice"));
  CHECK_THAT(message_of([&] { JsonReader(document).throw_problems(); }), Contains("/list/1/y~1z"));
}

TEST_CASE("A value must have exactly the expected type", "[json_reader]") {
  CHECK(reading("3", json_integer(1)) == "no error");
  CHECK(reading("3.7", json_integer(1)) == "f: /key: must be an integer >= 1; got 3.7");
  CHECK(reading("3.0", json_integer(1)) == "f: /key: must be an integer >= 1; got 3.0; write 3");
  CHECK(reading("true", json_integer(1)) == "f: /key: must be an integer >= 1; got true");
  CHECK(reading("-1", json_integer(0)) == "f: /key: must be an integer >= 0; got -1");
  CHECK(reading("\"8\"", json_integer(1)) == "f: /key: must be an integer >= 1; got \"8\"; write 8 without quotes");
  CHECK(reading("3000000000", json_integer(1)) ==
        "f: /key: must be an integer >= 1; got 3000000000; the largest is 2147483647");
  CHECK_THAT(reading("18446744073709551615", json_integer(0, 4e9)), Contains("must be"));
  CHECK(reading("null", json_integer(1)) ==
        "f: /key: must be an integer >= 1; got null; leave the key out to get its default");
  CHECK(reading("null", or_null(json_integer(1))) == "no error");
  CHECK(reading("1", json_boolean()) == "f: /key: must be true or false; got 1; write true");
  CHECK(reading("1.0", json_number_below(0, 1)) == "f: /key: must be a number >= 0 and < 1; got 1.0");
  CHECK(reading("5", json_number(0)) == "no error");
  CHECK(reading("[\"a\", 1]", json_texts()) == "f: /key: must be a string or a list of strings; got [\"a\",1]");
  CHECK(reading("[\"a\"]", json_texts()) == "no error");
  CHECK_THAT(reading("\"" + std::string(500, 'x') + "\"", json_object()),
             Contains("...") && !Contains(std::string(200, 'x')));
  std::string dots = "good .", marks, umlauts;
  for (int i = 0; i < 100; ++i) dots += " .", marks += "\\\"", umlauts += "\xc3\xbc";
  CHECK(reading('"' + dots + '"', json_object()) == "f: /key: must be an object; got \"good...\"");
  CHECK_THAT(reading('"' + marks + '"', json_object()), EndsWith("\\\"\\\"...\""));
  CHECK_THAT(reading('"' + umlauts + '"', json_object()), EndsWith("\xc3\xbc...\""));
  CHECK_THAT(reading("[\"x" + umlauts + "\"]", json_text()), EndsWith("\xc3\xbc..."));
}

TEST_CASE("A word must be one of a list", "[json_reader]") {
  const JsonType type = json_choice({{"linear"}, {"cosine"}, {"greedy", "use \"linear\""}});
  CHECK(reading("\"cosine\"", type) == "no error");
  CHECK(reading("\"cosnie\"", type) ==
        "f: /key: must be one of \"linear\", \"cosine\"; got \"cosnie\"; did you mean \"cosine\"?");
  CHECK(reading("\"xyz\"", type) == "f: /key: must be one of \"linear\", \"cosine\"; got \"xyz\"");
  CHECK(reading("\"greedy\"", type) == "f: /key: \"greedy\" is not available; got \"greedy\"; use \"linear\"");
  JsonType degree = json_integer(1);
  degree.choices = {{"auto"}};
  CHECK(reading("\"auto\"", degree) == "no error");
  CHECK(reading("\"atuo\"", degree) ==
        "f: /key: must be an integer >= 1 or \"auto\"; got \"atuo\"; did you mean \"auto\"?");
}

TEST_CASE("All mistakes of a document are reported at once", "[json_reader]") {
  JsonDocument document = parse_json(
      R"({"training": {"max_stesp": 5, "lr": 1, "seed": -1}, "zzz": 0, "x": 1, "x": 2, "inner": 3})", "c.json");
  document.origins["/training/seed"] = "--set training.seed=-1";
  JsonReader root(document, {{"lr", "training.learning_rate"}});
  JsonReader training = root.child("training");
  training.find("max_steps", json_integer(1));
  CHECK(training.clean());
  training.find("seed", json_integer(0));
  CHECK_FALSE(training.clean());
  CHECK(training.report_unknown_keys());
  CHECK_FALSE(root.child("absent").report_unknown_keys());
  CHECK(root.child("absent").value().empty());
  root.child("inner");
  root.find("x", json_integer(0));
  root.report_unknown_keys();
  CHECK(message_of([&] { root.throw_problems(); }) ==
        "c.json: /x: the key is given twice; first 1, then 2; keep one\n"
        "--set training.seed=-1: /training/seed: must be an integer >= 0; got -1\n"
        "c.json: /training/lr: unknown key; got 1; did you mean training.learning_rate?\n"
        "c.json: /training/max_stesp: unknown key; got 5; did you mean max_steps?\n"
        "c.json: /inner: must be an object; got 3\n"
        "c.json: /zzz: unknown key; got 0; the keys here are absent, inner, training, x");
}

TEST_CASE("JSON text inside a file may not be nested deeper than a file", "[json_reader]") {
  CHECK_THAT(reading("\"[1, 2]\"", json_array()), Contains("write [1,2] without quotes"));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  CHECK_THAT(reading('"' + deep + '"', json_array()), StartsWith("f: /key: must be an array; got \"[[["));
  CHECK(json_in_text(deep).is_discarded());
  CHECK(json_in_text("{\"a\": [1]}") == nlohmann::json{{"a", {1}}});
}

TEST_CASE("The report of keys that are given twice does not grow with their number", "[json_reader]") {
  const std::string path(10000, 'x');
  std::string text = "{\"" + path + "\": {\"a\": 1";
  for (int i = 0; i < 1000; ++i) text += ", \"a\": 1";
  const JsonDocument document = parse_json(text + "}}", "f");
  CHECK(document.problems.size() == 100);
  CHECK_THAT(document.problems.back(), Contains("/a: the key is given twice"));
}

TEST_CASE("A document that is not an object is one mistake", "[json_reader]") {
  const JsonDocument document = parse_json("[1]", "f");
  JsonReader reader(document);
  CHECK(reader.find("a", json_integer(0)) == nullptr);
  CHECK(message_of([&] { reader.throw_problems(); }) == "f: /: must be an object; got [1]");
}

TEST_CASE("A word is suggested only if it is similar", "[json_reader]") {
  CHECK(nearest_word("Micro-Batches", {"microbatches", "pipeline"}) == "microbatches");
  CHECK(nearest_word("tensor_parallel_dergee", {"pipeline_parallel_degree", "tensor_parallel_degree"}) ==
        "tensor_parallel_degree");
  CHECK(nearest_word("qqqqqq", {"seed", "optim"}).empty());
  CHECK(nearest_word("", {"seed"}).empty());
}

}  // namespace shardline::json_reader_test
