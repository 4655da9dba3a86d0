// What smp_options.activation_checkpointing says. A strategy for all blocks:
//   "none" | "selective" | "each" | "group_N" | "contiguous"
// or a list, of which the first entry that names a block counts (a block that none names is kept):
//   [{"layers": "h.[0-3]", "strategy": "group_2"}, {"layers": "h.*", "strategy": "selective"}]
// Blocks are named as in the plan, by patterns of engine/config/keys/name_patterns.h. The embedding and the head are
// always kept: the first has next to nothing to keep, the second makes its gradients in the forward pass.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "pipeline/activations/recompute.h"

namespace shardline {

struct RecomputeRule {
  std::string layers;
  Recompute recompute;
  bool operator==(const RecomputeRule&) const = default;
};

struct RecomputeRules {
  std::vector<RecomputeRule> entries = {{"*", {}}};
  bool operator==(const RecomputeRules&) const = default;
};

void to_json(nlohmann::json& json, const RecomputeRules& rules);
// Throws ConfigError: the rule that the value breaks, and what to write, as "RULE; ADVICE".
void from_json(const nlohmann::json& json, RecomputeRules& rules);

// By layer of the model. Throws ConfigError where an entry names no block or only blocks that earlier entries name.
std::vector<Recompute> recompute_by_layer(const RecomputeRules& rules, const ModelSpec& spec);

}  // namespace shardline
