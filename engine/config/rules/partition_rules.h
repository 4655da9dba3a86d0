// What smp_options.manual_partition says, where the planner does not place the layers:
//   [8, 17, 17]                                                 blocks of each stage, or of each chunk
//   [{"layers": "h.[0-3]", "stage": 0}, {"layers": "*", "stage": 1}]   the first entry that names a layer counts
// Layers are named as in the plan; * ? and [] are those of the shell.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

struct PartitionByHand {
  struct Rule {
    std::string layers;
    int stage = 0;
  };
  std::vector<int> blocks;  // by chunk; or
  std::vector<Rule> rules;
};

// null: neither. Throws ConfigError("RULE; ADVICE").
PartitionByHand partition_by_hand(const nlohmann::json& value);

// The stage that a rule gives a layer, or -1.
int stage_by_hand(const PartitionByHand& partition, const std::string& layer);

}  // namespace shardline
