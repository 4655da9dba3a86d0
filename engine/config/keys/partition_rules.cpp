#include "engine/config/keys/partition_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace shardline {
namespace {

bool is_count(const nlohmann::json& value) {
  return value.is_number_integer() && value >= 0 && value <= 1000000;
}

// Embeddings and heads have names of our own; the names of their parameters contain those of their modules.
bool is_in_module(const NamePattern& pattern, const ParamSpec& param) {
  const size_t end = param.name.rfind('.');
  return end != std::string::npos && pattern.contains(param.name.substr(0, end));
}

bool selects(const NamePattern& pattern, const LayerSpec& layer) {
  if (pattern.contains(layer.name)) return true;
  return !layer.is_block && !layer.params.empty() &&
         std::ranges::all_of(layer.params, [&](const ParamSpec& param) { return is_in_module(pattern, param); });
}

// Throws ConfigError if the pattern selects no layer, but some modules of the embedding or of the head.
void check_modules(const NamePattern& pattern, const ModelSpec& spec, const std::string& place) {
  if (std::ranges::any_of(spec.layers, [&](const LayerSpec& layer) { return selects(pattern, layer); })) return;
  for (const auto& layer : spec.layers)
    if (!layer.is_block &&
        std::ranges::any_of(layer.params, [&](const ParamSpec& param) { return is_in_module(pattern, param); }))
      throw ConfigError(inside_text(pattern, layer.name, place, "layer"));
}

}  // namespace

void to_json(nlohmann::json& json, const PartitionByHand& partition) {
  json = nullptr;
  for (const int blocks : partition.blocks) json.push_back(blocks);
  for (const auto& [layers, stage] : partition.rules) json.push_back({{"layers", layers}, {"stage", stage}});
}

void from_json(const nlohmann::json& value, PartitionByHand& partition) {
  partition = {};
  if (value.is_null()) return;
  if (!value.is_array() || value.empty())
    throw ConfigError(
        "must be a list; use numbers of blocks, such as [8, 17, 17], or entries {\"layers\": \"h.[0-3]\", \"stage\": "
        "0}");
  for (const auto& entry : value) {
    const auto number = cat("entry ", partition.blocks.size() + partition.rules.size());
    if (value.front().is_number()) {
      if (!is_count(entry))
        throw ConfigError(cat(number, " must be a number of blocks, but is ", entry.dump(),
                              "; use either numbers only or entries only"));
      partition.blocks.push_back(entry.get<int>());
      continue;
    }
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("layers") || !entry["layers"].is_string() ||
        !entry.contains("stage") || !is_count(entry["stage"]))
      throw ConfigError(cat(number, " must have \"layers\" and \"stage\" and nothing else, but is ", entry.dump(),
                            "; write it as {\"layers\": \"h.[0-3]\", \"stage\": 0}"));
    partition.rules.push_back({entry["layers"].get<NamePattern>(), entry["stage"]});
  }
}

std::vector<int> stages_by_hand(const PartitionByHand& partition, const ModelSpec& spec) {
  const std::string place = "/smp_options/manual_partition";
  std::vector<NamePattern> patterns;
  for (const auto& rule : partition.rules) {
    check_modules(rule.layers, spec, cat(place, "/", patterns.size()));
    patterns.push_back(rule.layers);
  }
  std::vector<std::string> names;
  for (const auto& layer : spec.layers) names.push_back(layer.name);
  const auto selects_layer = [&](const NamePattern& pattern, size_t layer) {
    return selects(pattern, spec.layers[layer]);
  };
  std::vector<int> stages;
  for (const auto& first : first_matches(patterns, names, place, "layer", selects_layer))
    stages.push_back(first ? partition.rules[*first].stage : -1);
  return stages;
}

}  // namespace shardline
