// The strict JSON readers: they accept only what nlohmann's own parser reads in the same way, and every way of
// requesting a value gives the value or a typed error.
#include <nlohmann/json.hpp>
#include <optional>

#include "core/files/json_data.h"
#include "core/files/json_reader.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::json_fuzz {
namespace {

using nlohmann::json;

JsonType count_or_auto() {
  auto type = json_integer(-5, 5);
  type.choices = {{"auto"}};
  return type;
}

void read_object(JsonReader& reader) {
  if (const auto* flag = reader.find("flag", json_boolean())) FUZZ_REQUIRE(flag->is_boolean(), *flag);
  if (const auto* count = reader.find("count", json_integer(1)))
    FUZZ_REQUIRE(count->is_number_integer() && *count >= 1 && *count <= 2147483647, *count);
  if (const auto* count = reader.find("count_or_auto", count_or_auto()))
    FUZZ_REQUIRE(*count == "auto" || (count->is_number_integer() && *count >= -5 && *count <= 5), *count);
  if (const auto* share = reader.find("share", json_number_below(0, 1)))
    FUZZ_REQUIRE(share->is_number() && *share >= 0 && *share < 1, *share);
  if (const auto* rate = reader.find("rate", json_number(0))) FUZZ_REQUIRE(rate->is_number() && *rate >= 0, *rate);
  if (const auto* name = reader.find("name", json_text()))
    FUZZ_REQUIRE(name->get<std::string>().find('\0') == std::string::npos, *name);
  reader.find("files", json_texts());
  reader.find("words", json_texts({{"none"}, {"all", "use none"}}));
  reader.find("kind", json_choice({{"simple"}, {"interleaved"}, {"*.csv"}, {"old", "use simple"}}));
  reader.find("list", or_null(json_array()));
  reader.find("any", json_any());
}

// As the readers of data files do: the first mistake ends it.
void read_value(const JsonValue& value) {
  if (value.has("name")) value.text("name", "");
  if (value.has("flag")) value.flag("flag", false);
  if (value.has("count")) value.at("count").integer(-3, 3);
  for (const auto& [key, member] : value.members())
    if (member.json().is_array())
      for (const auto& item : member.items())
        if (item.json().is_object()) item.require_keys_among({"name", "flag"});
  value.require_keys_among({"flag", "count", "name", "list", "object"});
}

}  // namespace

FUZZ_TARGET(json) {
  const std::string text = fuzz::text_of(data, size);
  std::optional<JsonDocument> document;
  bool as_document = false;
  if (fuzz::accepts(size, [&] { document = parse_json(text, "file.json"); })) {
    const json plain = json::parse(text, nullptr, false);
    FUZZ_REQUIRE(!plain.is_discarded(), "parse_json accepts it");
    FUZZ_REQUIRE(plain == document->value, "parse_json makes ", document->value.dump());
    as_document = fuzz::accepts(size, [&] {
      JsonReader reader(*document, {{"other_name", "name"}});
      read_object(reader);
      JsonReader child = reader.child("object");
      read_object(child);
      child.report_unknown_keys();
      reader.report_unknown_keys();
      reader.throw_problems();
      FUZZ_REQUIRE(reader.clean() && child.clean(), "a mistake was not thrown");
    });
  }
  std::optional<json> value;
  if (!fuzz::accepts(size, [&] { value = parse_data_json(text, "file.json"); })) return as_document;
  FUZZ_REQUIRE(document && document->problems.empty() && document->value == *value, "the two readers differ");
  const bool as_value = fuzz::accepts(size, [&] { read_value(JsonValue(*value, "file.json")); });
  return as_document || as_value;
}

}  // namespace shardline::json_fuzz
