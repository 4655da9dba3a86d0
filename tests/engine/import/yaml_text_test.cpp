#include "engine/import/yaml_text.h"

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::yaml_text_test {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

std::string mistake(const std::string& text) {
  try {
    json_of_yaml(text, "a.yaml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

#ifdef SHARDLINE_YAML
TEST_CASE("YAML with maps, lists and plain values is read like JSON") {
  const json expected = {
      {"a", "1"}, {"b", {{"c", true}, {"d", nullptr}}}, {"e", {"x", "2.5"}}, {"f", "no"}, {"g", json::array()}};
  CHECK(json_of_yaml("a: 1\nb:\n  c: true\n  d:\ne:\n- x\n- 2.5\nf: 'no'\ng: []\n", "a.yaml") == expected);
}

TEST_CASE("other YAML is refused with its place") {
  CHECK_THAT(mistake("a: &x 1\nb: *x\n"), Contains("anchors and tags are not supported"));
  CHECK_THAT(mistake("a: *x\n"), Contains("aliases are not supported"));
  CHECK_THAT(mistake("a: !!int 1\n"), Contains("anchors and tags"));
  CHECK_THAT(mistake("a: 1\na: 2\n"), Contains("the key \"a\" is given twice"));
  CHECK_THAT(mistake("a: 1\n---\nb: 1\n"), Contains("several documents"));
  CHECK_THAT(mistake("a: [1\n"), Contains("a.yaml:2"));
  CHECK_THAT(mistake("{a: 1, [b]: 2}\n"), Contains("a key is not a scalar"));
  CHECK_THAT(mistake(""), Contains("not a YAML document"));
  CHECK_THAT(mistake(std::string(100, '[')), Contains("more than 32 levels"));
}
#else
TEST_CASE("a build without libyaml refuses YAML, and the error states the reason") {
  CHECK_THAT(mistake("a: 1\n"), Contains("built without libyaml"));
}
#endif

}  // namespace shardline::yaml_text_test
