#include "engine/config/schema.h"

#include <cmath>
#include <string>

#include "core/error.h"
#include "engine/config/key_texts.h"

namespace shardline {
namespace {

using Schema = nlohmann::ordered_json;
using Kind = JsonType::Kind;

Schema number(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e16;
  if (!whole) return value;
  const int64_t integer = value;
  return integer;
}

Schema word_schema(const JsonType& type) {
  Schema text = {{"type", "string"}};
  if (type.choices.empty()) return text;
  Schema words = Schema::array(), endings = Schema::array();
  for (const auto& choice : type.choices) {
    if (!choice.advice.empty()) continue;
    if (choice.value.starts_with("*.")) {
      endings.push_back({{"type", "string"}, {"pattern", "\\." + choice.value.substr(2) + "$"}});
    } else {
      words.push_back(choice.value);
    }
  }
  const Schema choice = {{"enum", words}};
  if (endings.empty()) return choice;
  endings.insert(endings.begin(), choice);
  return {{"anyOf", endings}};
}

Schema range_schema(const JsonType& type) {
  Schema schema = {
      {"type", type.kind == Kind::integer ? "integer" : "number"}};  // for a number, or for each number of a list
  if (std::isfinite(type.minimum)) schema["minimum"] = number(type.minimum);
  if (std::isfinite(type.maximum)) schema[type.below ? "exclusiveMaximum" : "maximum"] = number(type.maximum);
  if (type.choices.empty()) return schema;
  return {{"anyOf", Schema::array({schema, word_schema(type)})}};
}

Schema type_schema(const JsonType& type) {
  switch (type.kind) {
    case Kind::any:
      return Schema::object();
    case Kind::boolean:
      return {{"type", "boolean"}};
    case Kind::integer:
    case Kind::number:
      return range_schema(type);
    case Kind::numbers:
      return {{"type", "array"}, {"items", range_schema(type)}};
    case Kind::text:
      return word_schema(type);
    case Kind::texts: {
      const Schema word = word_schema(type);
      return {{"anyOf", Schema::array({word, {{"type", "array"}, {"items", word}}})}};
    }
    case Kind::array:
      return {{"type", "array"}};
    case Kind::object:
      return {{"type", "object"}};
  }
  return Schema::object();
}

// The values for which Key::is_default is true.
Schema only_default(const Key& key) {
  if (!key.default_value.is_null()) return {{"enum", Schema::array({key.default_value})}};
  return {{"enum", Schema::array({nullptr, false, "", Schema::array(), Schema::object()})}};
}

Schema key_schema(const Section& section, const Key& key) {
  const bool supported = key.status == Status::honoured || key.status == Status::no_effect;
  Schema schema = supported ? type_schema(key.type) : only_default(key);
  if (supported && key.type.nullable && key.type.kind != Kind::any)
    schema = {{"anyOf", Schema::array({schema, {{"type", "null"}}})}};
  Schema described = {{"description", cat(key.status == Status::no_effect ? "No effect: "
                                          : supported                     ? ""
                                                                          : "Not supported: ",
                                          plain_meaning(key))}};
  described.update(schema);
  if (supported && !key.default_value.is_null()) described["default"] = key.default_value;
  if (const auto example = example_value(section, key); !example.is_null())
    described["examples"] = Schema::array({example});
  return described;
}

Schema properties_of(const Section& section) {
  Schema properties = Schema::object();
  for (const auto& key : section.keys) {
    properties[key.name] = key_schema(section, key);
    for (const auto& alias : key.aliases) {
      Schema schema = key_schema(section, key);
      schema["description"] = cat("Another name of ", key.name, ". ", plain_meaning(key));
      properties[alias] = schema;
    }
  }
  return properties;
}

Schema closed_object(const std::string& description, const Schema& properties) {
  return {
      {"description", description}, {"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

Schema reference_to(const std::string& name) {
  return {{"$ref", "#/definitions/" + name}};
}

// The options themselves, or SageMaker's wrapper around them.
Schema with_wrapper(Schema options) {
  Schema& properties = options["properties"];
  properties["enabled"] = {{"description", "Part of SageMaker's wrapper; must be true."},
                           {"enum", Schema::array({true})}};
  properties["parameters"] = reference_to("parameters");
  return options;
}

Schema distribution_schema() {
  const Schema data_parallel = {{"enabled", {{"type", "boolean"}}}, {"custom_mpi_options", {{"type", "string"}}}};
  const Schema smdistributed = {{"modelparallel", reference_to("smp_options")},
                                {"dataparallel", closed_object("SageMaker's data parallelism.", data_parallel)}};
  return closed_object("SageMaker's distribution object, which replaces smp_options and mpi_options.",
                       {{"smdistributed", closed_object("Model and data parallelism.", smdistributed)},
                        {"mpi", reference_to("mpi_options")}});
}

}  // namespace

nlohmann::ordered_json config_schema() {
  Schema definitions = Schema::object();
  Schema properties = {{"$schema", {{"description", "The file with this schema, for editors."}, {"type", "string"}}}};
  for (const auto& section : config_sections()) {
    if (section.name.empty()) {
      properties.update(properties_of(section));
      continue;
    }
    const Schema options = closed_object(without_markdown(section.meaning), properties_of(section));
    if (section.name == "smp_options") definitions["parameters"] = options;
    definitions[section.name] = section.name == "smp_options" ? with_wrapper(options) : options;
    properties[section.name] = reference_to(section.name);
  }
  properties["distribution"] = distribution_schema();
  properties["derived"] = {{"description", "Sizes that a run has derived; ignored."}, {"type", "object"}};
  Schema schema = {{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "shardline config"}};
  schema.update(closed_object("A training run of shardline.", properties));
  schema["definitions"] = definitions;
  return schema;
}

}  // namespace shardline
