#include "engine/config/rules/recompute_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/rules/name_patterns.h"

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

}  // namespace

std::vector<RecomputeRule> recompute_rules(const nlohmann::json& value) {
  if (value.is_string()) return {{"*", strategy(value)}};
  if (!value.is_array())
    throw ConfigError(
        "must be a strategy or a list; use \"each\", or [{\"layers\": \"h.*\", \"strategy\": \"each\"}, ...]");
  std::vector<RecomputeRule> rules;
  for (const auto& entry : value) {
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("strategy") || !entry.contains("layers") ||
        !entry["layers"].is_string())
      throw ConfigError(cat("entry ", rules.size(), " must have \"layers\" and \"strategy\" and nothing else, but is ",
                            entry.dump(), "; write it as {\"layers\": \"h.[0-3]\", \"strategy\": \"each\"}"));
    check_layer_pattern(entry["layers"]);
    rules.push_back({entry["layers"], strategy(entry["strategy"])});
  }
  return rules;
}

std::vector<Recompute> recompute_by_layer(const nlohmann::json& value, const ModelSpec& spec) {
  const auto rules = recompute_rules(value);
  std::vector<Recompute> by_layer(spec.layers.size());
  std::vector<bool> counts(rules.size());
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (!spec.layers[layer].is_block) continue;
    for (size_t rule = 0; rule < rules.size(); ++rule) {
      if (!names_layer(rules[rule].layers, spec.layers[layer].name)) continue;
      by_layer[layer] = rules[rule].recompute;
      counts[rule] = true;
      break;
    }
  }
  for (size_t rule = 0; rule < rules.size(); ++rule)
    if (value.is_array() && !counts[rule])
      throw ConfigError(cat("/smp_options/activation_checkpointing/", rule, ": \"", rules[rule].layers,
                            "\" matches no block that earlier entries have not matched; the model has ",
                            spec.block_count(), " blocks, named as in `shardline plan`"));
  return by_layer;
}

}  // namespace shardline
