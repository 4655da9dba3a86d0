#include "engine/config/keys/tensor_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace shardline {
namespace {

constexpr const char* kExample = "{\"pattern\": \"h.[0-3].mlp\", \"split\": false}";

TensorRule::Wish wish_of(const nlohmann::json& value, size_t entry) {
  if (value == "auto") return TensorRule::Wish::automatic;
  if (value.is_boolean()) return value.get<bool>() ? TensorRule::Wish::split : TensorRule::Wish::whole;
  throw ConfigError(cat("entry ", entry, ": \"split\" must be true, false or \"auto\", but is ", value.dump(),
                        "; write it as ", kExample));
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
    rules.entries.push_back({entry["pattern"].get<NamePattern>(), wish_of(entry["split"], rules.entries.size())});
  }
}

std::map<std::string, TensorRule> tensor_rules_by_unit(const TensorRules& rules, const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const auto& layer : spec.layers)
    for (const auto& unit : layer.units) names.push_back(layer.full_name(unit));
  std::map<std::string, TensorRule> by_unit;
  size_t entry = 0;
  for (const TensorRule& rule : rules.entries) {
    require_contained(rule.pattern, names, cat("/smp_options/tensor_parallel_layers/", entry++),
                      "unit that tensor parallelism splits");
    for (const auto& name : names)
      if (rule.pattern.contains(name)) by_unit[name] = rule;
  }
  return by_unit;
}

}  // namespace shardline
