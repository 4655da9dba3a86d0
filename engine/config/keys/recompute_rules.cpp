#include "engine/config/keys/recompute_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/keys/name_patterns.h"

namespace shardline {
namespace {

Recompute strategy(const nlohmann::json& value) {
  const auto found = value.is_string() ? recompute_strategy(value.get<std::string>()) : std::nullopt;
  if (!found)
    throw ConfigError(cat(value.dump(),
                          " is not a strategy; use \"none\", \"selective\", \"each\", \"contiguous\" or \"group_N\" "
                          "with a number N of layers"));
  return *found;
}

bool is_for_all(const RecomputeRules& rules) {
  return rules.entries.size() == 1 && rules.entries.front().layers == "*";
}

}  // namespace

void to_json(nlohmann::json& json, const RecomputeRules& rules) {
  if (is_for_all(rules)) {
    json = to_string(rules.entries.front().recompute);
    return;
  }
  json = nlohmann::json::array();
  for (const auto& [layers, recompute] : rules.entries)
    json.push_back({{"layers", layers}, {"strategy", to_string(recompute)}});
}

void from_json(const nlohmann::json& json, RecomputeRules& rules) {
  if (json.is_string()) {
    rules.entries = {{"*", strategy(json)}};
    return;
  }
  if (!json.is_array())
    throw ConfigError(
        "must be a strategy or a list; use \"each\", or [{\"layers\": \"h.*\", \"strategy\": \"each\"}, ...]");
  rules.entries.clear();
  for (const auto& entry : json) {
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("strategy") || !entry.contains("layers") ||
        !entry["layers"].is_string())
      throw ConfigError(cat("entry ", rules.entries.size(),
                            " must have \"layers\" and \"strategy\" and nothing else, but is ", entry.dump(),
                            "; write it as {\"layers\": \"h.[0-3]\", \"strategy\": \"each\"}"));
    check_layer_pattern(entry["layers"]);
    rules.entries.push_back({entry["layers"], strategy(entry["strategy"])});
  }
}

std::vector<Recompute> recompute_by_layer(const RecomputeRules& rules, const ModelSpec& spec) {
  const auto& entries = rules.entries;
  std::vector<Recompute> by_layer(spec.layers.size());
  std::vector<bool> counts(entries.size());
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (!spec.layers[layer].is_block) continue;
    for (size_t rule = 0; rule < entries.size(); ++rule) {
      if (!names_layer(entries[rule].layers, spec.layers[layer].name)) continue;
      by_layer[layer] = entries[rule].recompute;
      counts[rule] = true;
      break;
    }
  }
  for (size_t rule = 0; rule < entries.size(); ++rule)
    if (!is_for_all(rules) && !counts[rule])
      throw ConfigError(cat("/smp_options/activation_checkpointing/", rule, ": \"", entries[rule].layers,
                            "\" matches no block that earlier entries have not matched; the model has ",
                            spec.block_count(), " blocks, named as in `shardline plan`"));
  return by_layer;
}

}  // namespace shardline
