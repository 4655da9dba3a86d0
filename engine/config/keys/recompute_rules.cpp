#include "engine/config/keys/recompute_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

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
    rules.entries.push_back({entry["layers"].get<NamePattern>(), strategy(entry["strategy"])});
  }
}

std::vector<Recompute> recompute_by_layer(const RecomputeRules& rules, const ModelSpec& spec) {
  std::vector<std::string> blocks;
  for (const auto& layer : spec.layers)
    if (layer.is_block) blocks.push_back(layer.name);
  std::vector<Recompute> by_layer(spec.layers.size());
  if (blocks.empty() && is_for_all(rules)) return by_layer;

  std::vector<NamePattern> patterns;
  for (const auto& entry : rules.entries) patterns.push_back(entry.layers);
  const auto firsts = first_matches(patterns, blocks, "/smp_options/activation_checkpointing", "block");
  auto first = firsts.begin();
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (!spec.layers[layer].is_block) continue;
    if (*first) by_layer[layer] = rules.entries[**first].recompute;
    ++first;
  }
  return by_layer;
}

}  // namespace shardline
