#include "engine/config/keys/partition_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace shardline {
namespace {

bool is_count(const nlohmann::json& value) {
  return value.is_number_integer() && value >= 0 && value <= 1000000;
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
        "must be a list; use numbers of blocks, as [8, 17, 17], or entries {\"layers\": \"h.[0-3]\", \"stage\": 0}");
  for (const auto& entry : value) {
    const auto number = cat("entry ", partition.blocks.size() + partition.rules.size());
    if (value.front().is_number()) {
      if (!is_count(entry))
        throw ConfigError(cat(number, " must be a number of blocks, but is ", entry.dump(),
                              "; do not mix numbers with anything else"));
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
  std::vector<NamePattern> patterns;
  for (const auto& rule : partition.rules) patterns.push_back(rule.layers);
  std::vector<std::string> names;
  for (const auto& layer : spec.layers) names.push_back(layer.name);
  std::vector<int> stages;
  for (const auto& first : first_matches(patterns, names, "/smp_options/manual_partition", "layer"))
    stages.push_back(first ? partition.rules[*first].stage : -1);
  return stages;
}

}  // namespace shardline
