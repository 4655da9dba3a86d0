#include "engine/config/keys/tensor_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "engine/config/keys/name_patterns.h"

namespace shardline {
namespace {

constexpr const char* kExample = "{\"pattern\": \"h.[0-3].mlp\", \"split\": false}";

TensorRule::Wish wish_of(const nlohmann::json& value, size_t entry) {
  if (value == "auto") return TensorRule::Wish::automatic;
  if (value.is_boolean()) return value.get<bool>() ? TensorRule::Wish::split : TensorRule::Wish::whole;
  throw ConfigError(cat("entry ", entry, ": \"split\" must be true, false or \"auto\", but is ", value.dump(),
                        "; write it as ", kExample));
}

std::string names_near(const std::string& pattern, const std::vector<std::string>& names) {
  const std::string near = nearest_word(pattern, names);
  if (!near.empty()) return cat("did you mean \"", near, "\"?");
  std::string all;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 4); ++i) all += cat(i == 0 ? "" : ", ", names[i]);
  return names.empty() ? "the model has none" : cat("the model has ", all, ", ..., ", names.back());
}

}  // namespace

void to_json(nlohmann::json& json, const TensorRules& rules) {
  json = nullptr;
  for (const auto& [pattern, wish] : rules.entries)
    json.push_back({{"pattern", pattern},
                    {"split", wish == TensorRule::Wish::automatic ? nlohmann::json("auto")
                                                                  : nlohmann::json(wish == TensorRule::Wish::split)}});
}

void from_json(const nlohmann::json& json, TensorRules& rules) {
  rules.entries.clear();
  if (json.is_null()) return;
  if (!json.is_array()) throw ConfigError(cat("must be a list; write it as [", kExample, ", ...]"));
  for (const auto& entry : json) {
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("pattern") || !entry["pattern"].is_string() ||
        !entry.contains("split"))
      throw ConfigError(cat("entry ", rules.entries.size(),
                            " must have \"pattern\" and \"split\" and nothing else, but is ", entry.dump(),
                            "; write it as ", kExample));
    const auto pattern = entry["pattern"].get<std::string>();
    check_layer_pattern(pattern);
    rules.entries.push_back({pattern, wish_of(entry["split"], rules.entries.size())});
  }
}

std::map<std::string, TensorRule> tensor_rules_by_unit(const TensorRules& rules, const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const auto& layer : spec.layers)
    for (const auto& unit : layer.units) names.push_back(layer.full_name(unit));
  std::map<std::string, TensorRule> by_unit;
  size_t entry = 0;
  for (const TensorRule& rule : rules.entries) {
    bool named = false;
    for (const auto& name : names) {
      if (!names_layer(rule.pattern, name)) continue;
      by_unit[name] = rule;
      named = true;
    }
    if (!named)
      throw ConfigError(cat("/smp_options/tensor_parallel_layers/", entry, ": \"", rule.pattern,
                            "\" names nothing that tensor parallelism splits; ", names_near(rule.pattern, names)));
    ++entry;
  }
  return by_unit;
}

}  // namespace shardline
