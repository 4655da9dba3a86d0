#include "core/model/name_pattern.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::name_pattern_test {
namespace {

using Catch::Contains;
using Names = std::vector<std::string>;

const Names kNames = {"embedding.wte", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "h.10.attn", "h.10.mlp", "head"};

Names matched(const NamePattern& pattern) {
  Names found;
  for (const auto& name : kNames)
    if (pattern.matches(name)) found.push_back(name);
  return found;
}

std::string mistake_in(const std::string& pattern) {
  try {
    NamePattern read(pattern);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string mistake_of(const std::string& pattern) {
  try {
    require_match(pattern, kNames, "/key", "unit");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a pattern is a shell pattern for a whole name, in which a star crosses dots") {
  CHECK(matched({}) == kNames);
  CHECK(matched("h.0.mlp") == Names{"h.0.mlp"});
  CHECK(matched("h.0").empty());
  CHECK(matched("mlp").empty());
  CHECK(matched("*mlp") == Names{"h.0.mlp", "h.1.mlp", "h.10.mlp"});
  CHECK(matched("h.1*") == Names{"h.1.attn", "h.1.mlp", "h.10.attn", "h.10.mlp"});
  CHECK(matched("h.?.mlp") == Names{"h.0.mlp", "h.1.mlp"});
  CHECK(matched("h.[1-9].mlp") == Names{"h.1.mlp"});
  CHECK(matched("h.[!1-9]*.mlp") == Names{"h.0.mlp"});
  CHECK(matched("*[!n]") == Names{"embedding.wte", "h.0.mlp", "h.1.mlp", "h.10.mlp", "head"});
  CHECK(matched("hxad").empty());
  CHECK(matched("h?ad") == Names{"head"});
  CHECK(matched("h.0?mlp") == Names{"h.0.mlp"});
  CHECK(matched("embedding*wte") == Names{"embedding.wte"});
  CHECK(nlohmann::json(NamePattern("h.*")).get<NamePattern>() == "h.*");
}

TEST_CASE("a regular expression is refused, and the error shows equivalent shell patterns") {
  const std::pair<const char*, const char*> spellings[] = {
      {".*", "write \"*\""},
      {".*mlp", "write \"*mlp\", or \"*mlp*\" for all names in which it is found"},
      {R"(mlp\.fc)", "write \"mlp.fc\", or \"*mlp.fc*\" for all names in which it is found"},
      {R"(^h\.[^0-3]\.mlp.*$)", "write \"h.[!0-3].mlp*\""},
      {R"(h\.\d+\.attn$)", "write \"h.[0-9]*.attn\", or \"*h.[0-9]*.attn\" for all names in which it is found"},
      {R"(^h\.0\.attn)", "write \"h.0.attn\", or \"h.0.attn*\" for all names in which it is found"},
      {"[^0-3]", "write \"[!0-3]\", or \"*[!0-3]*\" for all names in which it is found"},
      {"bias|norm", "write a pattern for each alternative"},
      {"h.(0|1)", "write a pattern for each alternative"},
      {"h.{0,1}", "write a pattern for each alternative"},
      {"(mlp", "write a pattern for each alternative"},
      {"h.0+", "write a pattern for each alternative"}};
  for (const auto& [regex, advice] : spellings) {
    CAPTURE(regex);
    CHECK_THAT(mistake_in(regex), Contains(cat('"', regex,
                                               "\" is a regular expression, but names are selected by * ? "
                                               "and [] as in a shell; ",
                                               advice)));
  }
  for (const char* pattern : {"", "*", "h.*", "h.*.attn", "ln_.*weight", "h.[0-3]", "h.[!03]", "[]]", "h.[0-3,5]"}) {
    CAPTURE(pattern);
    CHECK(mistake_in(pattern).empty());
  }
}

TEST_CASE("sets of characters that have no end or were meant as numbers are refused") {
  for (const char* pattern : {"h.[0-3", "h.[", "h.[!", "h.[]", "h.[!]", "h.[0].[1"}) {
    CAPTURE(pattern);
    CHECK_THAT(mistake_in(pattern), Contains("without a ]; write a set of characters as \"h.[0-3]\""));
  }
  for (const char* pattern : {"h.[0-12]", "h.[10-15].mlp", "h.[!0-12]", "h.[0].[8-11]"}) {
    CAPTURE(pattern);
    CHECK_THAT(mistake_in(pattern), Contains("a range of numbers; write 0 to 12 as two patterns"));
  }
}

TEST_CASE("a pattern that is longer than any name is refused") {
  CHECK(NamePattern(std::string(1024, '*')).matches("h.0"));
  CHECK_THROWS_WITH(NamePattern("^" + std::string(200000, '*')),
                    "a pattern of 200001 characters is longer than any name; use at most 1024");
}

TEST_CASE("if a pattern matches nothing, the error suggests one that does, or the nearest name") {
  CHECK(mistake_of("h.1.*").empty());
  CHECK(mistake_of("mlp") == "/key: \"mlp\" matches no unit; patterns match whole names: write \"*mlp*\"");
  CHECK_THAT(mistake_of("h.0"), Contains("write \"*h.0*\""));
  CHECK_THAT(mistake_of("a.*n"), Contains("write \"*a*n*\""));  // a regular expression that could be a shell pattern
  CHECK_THAT(mistake_of("h.1.mpl"),
             Contains("did you mean \"h.1.mlp\"? The names are embedding.wte, h.0.attn, h.0.mlp, "
                      "h.1.attn, ..., head"));
  CHECK_THAT(mistake_of("decoder.layers.3"), Contains("matches no unit; the names are embedding.wte, "));
  CHECK_THROWS_WITH(require_match("*", {}, "/key", "unit"), "/key: \"*\" matches no unit; there are none");
}

TEST_CASE("the first matching pattern of a list applies, and each pattern must be the first match for some name") {
  const auto firsts = [](const std::vector<NamePattern>& patterns) {
    std::string text;
    for (const auto& first : first_matches(patterns, {"a.0", "a.1", "b.0"}, "/list", "layer"))
      text += first ? std::to_string(*first) : "-";
    return text;
  };
  CHECK(firsts({}) == "---");
  CHECK(firsts({"a.1", "a.*"}) == "10-");
  CHECK(firsts({"*.0", "*"}) == "010");
  CHECK_THROWS_WITH(firsts({"*", "a.1"}),
                    "/list/1: \"a.1\" matches no layer that earlier entries have not matched; put it before them, or "
                    "leave it out");
  CHECK_THROWS_WITH(firsts({"a.*", "c.0"}), Contains("/list/1: \"c.0\" matches no layer; did you mean \"a.0\"?"));
}

TEST_CASE("a pattern in a list applies to all names below a path that it matches") {
  const auto firsts = [](const std::vector<NamePattern>& patterns) {
    std::string text;
    for (const auto& first :
         first_matches(patterns, {"encoder.layer.1", "encoder.layer.10", "decoder.layer.1"}, "/list", "layer"))
      text += first ? std::to_string(*first) : "-";
    return text;
  };
  CHECK(firsts({"encoder"}) == "00-");
  CHECK(firsts({"encoder.layer.1", "*"}) == "011");
  CHECK(firsts({"decoder.layer", "encoder.layer"}) == "110");
  CHECK(firsts({"?ecoder"}) == "--0");
  CHECK_THROWS_WITH(firsts({"enc"}), Contains("matches no layer"));
  CHECK_THROWS_WITH(firsts({"*", "decoder"}), Contains("matches no layer that earlier entries have not matched"));
  CHECK_THROWS_WITH(firsts({"encoder.layer.10.mlp.fc"}),
                    "/list/0: \"encoder.layer.10.mlp.fc\" is inside encoder.layer.10, and no part of a layer can be "
                    "named; write \"encoder.layer.10\"");
  CHECK_THROWS_WITH(firsts({"encoder", "*.[1-3].mlp"}), Contains("is inside encoder.layer.1,"));
  CHECK_THROWS_WITH(firsts({"encoder.*.mlp"}), Contains("matches no layer"));
}

}  // namespace shardline::name_pattern_test
