#include "engine/config/schema.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "engine/config/config.h"
#include "engine/config/key_texts.h"

#include "tests/catch.h"

namespace shardline::schema_test {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const json& schema() {
  static const json all = json::parse(config_schema().dump());
  return all;
}

// Whether the value satisfies the schema, for the keywords that config_schema() uses; others fail the test.
bool satisfies(const json& value, const json& rules) {
  static const std::set<std::string> annotations = {"description", "default", "examples",
                                                    "title",       "$schema", "definitions"};
  for (const auto& [keyword, rule] : rules.items()) {
    if (annotations.contains(keyword)) continue;
    if (keyword == "$ref") {
      if (!satisfies(value, schema().at(json::json_pointer(rule.get<std::string>().substr(1))))) return false;
    } else if (keyword == "type") {
      const bool same = rule == "object"    ? value.is_object()
                        : rule == "array"   ? value.is_array()
                        : rule == "string"  ? value.is_string()
                        : rule == "boolean" ? value.is_boolean()
                        : rule == "integer" ? value.is_number_integer()
                        : rule == "number"  ? value.is_number()
                                            : value.is_null();
      if (!same) return false;
    } else if (keyword == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end()) return false;
    } else if (keyword == "minimum") {
      if (value.is_number() && value < rule) return false;
    } else if (keyword == "maximum") {
      if (value.is_number() && value > rule) return false;
    } else if (keyword == "exclusiveMaximum") {
      if (value.is_number() && value >= rule) return false;
    } else if (keyword == "pattern") {
      if (value.is_string() && !std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>())))
        return false;
    } else if (keyword == "items") {
      if (value.is_array())
        for (const auto& item : value)
          if (!satisfies(item, rule)) return false;
    } else if (keyword == "anyOf") {
      if (std::none_of(rule.begin(), rule.end(), [&](const json& one) { return satisfies(value, one); })) return false;
    } else if (keyword == "properties") {
      if (value.is_object())
        for (const auto& [key, item] : value.items())
          if (rule.contains(key) && !satisfies(item, rule[key])) return false;
    } else if (keyword == "additionalProperties") {
      REQUIRE(rule == false);
      if (value.is_object())
        for (const auto& [key, item] : value.items())
          if (!rules["properties"].contains(key)) return false;
    } else {
      FAIL("unknown keyword " << keyword);
    }
  }
  return true;
}

bool valid(const json& config) {
  return satisfies(config, schema());
}

}  // namespace

TEST_CASE("All example configs satisfy the schema", "[schema]") {
  for (const auto& entry : fs::directory_iterator(fs::path(SHARDLINE_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    std::ifstream in(entry.path());
    CHECK(valid(json::parse(in)));
    const Config config = read_config(entry.path().string());
    CHECK(valid(resolved(config, json::object())));
  }
}

TEST_CASE("The schema refuses every value that the reader refuses for a single key", "[schema]") {
  const auto refused = [](const char* config) { return !valid(json::parse(config)); };
  CHECK(refused(R"({"training": {"max_step": 1}})"));
  CHECK(refused(R"({"trainin": {}})"));
  CHECK(refused(R"({"training": {"max_steps": "ten"}})"));
  CHECK(refused(R"({"training": {"max_steps": -2}})"));
  CHECK(refused(R"({"training": {"adam_beta1": 1}})"));
  CHECK(refused(R"({"smp_options": {"pipeline": "gpipe-2"}})"));
  CHECK(refused(R"({"smp_options": {"microbatches": "many"}})"));
  CHECK(refused(R"({"data": {"streaming": true}})"));
  CHECK(refused(R"({"training": {"report_to": ["wandb"]}})"));
}

TEST_CASE("The schema accepts the forms that the reader accepts", "[schema]") {
  const auto accepted = [](const char* config) { return valid(json::parse(config)); };
  CHECK(accepted(R"({"$schema": "shardline.schema.json"})"));
  CHECK(accepted(R"({"smp_options": {"microbatches": "auto", "pipeline": "own.csv"}})"));
  CHECK(accepted(R"({"smp_options": {"enabled": true, "parameters": {"partitions": 2}}})"));
  CHECK(accepted(R"({"distribution": {"smdistributed": {"modelparallel": {"enabled": true, "parameters": {"ddp": true}},
                     "dataparallel": {"enabled": true}}, "mpi": {"enabled": true, "processes_per_host": 8}}})"));
  CHECK(accepted(R"({"training": {"report_to": "tensorboard", "tf32": null}, "data": {"streaming": false}})"));
}

TEST_CASE("The schema has every key with its description, default and an example it accepts", "[schema]") {
  for (const auto& section : config_sections())
    for (const auto& key : section.keys)
      for (const auto& spelling : key.spellings()) {
        INFO(section.name << "." << spelling);
        const json& properties = section.name.empty() ? schema().at("properties")
                                                      : schema().at("definitions").at(section.name).at("properties");
        REQUIRE(properties.contains(spelling));
        const json& rules = properties[spelling];
        CHECK_FALSE(rules["description"].get<std::string>().empty());
        if (rules.contains("default")) CHECK(satisfies(rules["default"], rules));
        CHECK(rules.contains("examples") == (key.status == Status::honoured));
        if (rules.contains("examples")) CHECK(satisfies(rules["examples"][0], rules));
        CHECK(satisfies(key.default_value, rules));
      }
}

TEST_CASE("A config may name its schema", "[schema]") {
  const auto text = [](const std::string& line) {
    return "{" + line +
           R"("model": {"config": {"model_type": "gpt2"}}, "data": {"train": "a.txt", "tokenizer": "bytes"},
             "output_dir": "out"})";
  };
  CHECK(parse_config(text(R"("$schema": "shardline.schema.json", )"), "config") == parse_config(text(""), "config"));
}

}  // namespace shardline::schema_test
