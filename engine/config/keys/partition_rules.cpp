#include "engine/config/keys/partition_rules.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/config/keys/name_patterns.h"

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
    check_layer_pattern(entry["layers"]);
    partition.rules.push_back({entry["layers"], entry["stage"]});
  }
}

std::vector<int> stages_by_hand(const PartitionByHand& partition, const ModelSpec& spec) {
  std::vector<int> stages;
  std::vector<bool> counts(partition.rules.size());
  for (const auto& layer : spec.layers) {
    size_t rule = 0;
    while (rule < counts.size() && !names_layer(partition.rules[rule].layers, layer.name)) ++rule;
    stages.push_back(rule < counts.size() ? partition.rules[rule].stage : -1);
    if (rule < counts.size()) counts[rule] = true;
  }
  for (size_t rule = 0; rule < counts.size(); ++rule)
    if (!counts[rule])
      throw ConfigError(cat("/smp_options/manual_partition/", rule, ": \"", partition.rules[rule].layers,
                            "\" matches no layer that earlier entries have not matched; the model's layers are ",
                            spec.layers.front().name, ", h.0 to h.", spec.block_count() - 1, " and ",
                            spec.layers.back().name));
  return stages;
}

}  // namespace shardline
