// The placement in smp_options.manual_partition, used if the planner does not place the layers:
//   [8, 17, 17]                                                 blocks of each stage, or of each chunk
//   [{"layers": "h.[0-3]", "stage": 0}, {"layers": "*", "stage": 1}]   the first entry that matches a layer applies
// The layers' names are those in the plan; core/model/name_pattern.h describes the patterns. A rule also applies to the
// layers below a module whose path it matches, and to an embedding or a head if that module contains all of its
// parameters.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/model/model_spec.h"
#include "core/model/name_pattern.h"

namespace shardline {

struct PartitionByHand {
  struct Rule {
    NamePattern layers;
    int stage = 0;
    bool operator==(const Rule&) const = default;
  };
  std::vector<int> blocks;  // number of blocks by chunk; or:
  std::vector<Rule> rules;
  bool operator==(const PartitionByHand&) const = default;
};

void to_json(nlohmann::json& json, const PartitionByHand& partition);  // null if both are empty
// Throws ConfigError("RULE; ADVICE").
void from_json(const nlohmann::json& json, PartitionByHand& partition);

// Returns, for each layer, the stage of the first rule that matches it, or -1. Throws ConfigError for a rule that
// applies to no layer, with the layer's name if it is a path inside one.
std::vector<int> stages_by_hand(const PartitionByHand& partition, const ModelSpec& spec);

}  // namespace shardline
