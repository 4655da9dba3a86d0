#include "engine/config/rules/partition_rules.h"

#include <fnmatch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace shardline {
namespace {

bool is_count(const nlohmann::json& value) {
  return value.is_number_integer() && value >= 0 && value <= 1000000;
}

}  // namespace

PartitionByHand partition_by_hand(const nlohmann::json& value) {
  PartitionByHand partition;
  if (value.is_null()) return partition;
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
    partition.rules.push_back({entry["layers"].get<std::string>(), entry["stage"].get<int>()});
  }
  return partition;
}

int stage_by_hand(const PartitionByHand& partition, const std::string& layer) {
  for (const auto& rule : partition.rules)
    if (fnmatch(rule.layers.c_str(), layer.c_str(), 0) == 0) return rule.stage;
  return -1;
}

}  // namespace shardline
