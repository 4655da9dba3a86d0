// The strategies in smp_options.activation_checkpointing. One strategy for all blocks:
//   "none" | "selective" | "each" | "group_N" | "contiguous"
// or a list whose first entry that matches a block applies (blocks without a match are kept):
//   [{"layers": "h.[0-3]", "strategy": "group_2"}, {"layers": "h.*", "strategy": "selective"}]
// The blocks' names are those in the plan; core/model/name_pattern.h describes the patterns. An entry also applies to
// the blocks below a module whose path it matches. The embedding and the head are never recomputed: the embedding keeps
// next to nothing, and the head computes its gradients in the forward pass.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/model/model_spec.h"
#include "core/model/name_pattern.h"
#include "pipeline/activations/recompute.h"

namespace shardline {

struct RecomputeRule {
  NamePattern layers;
  Recompute recompute;
  bool operator==(const RecomputeRule&) const = default;
};

struct RecomputeRules {
  std::vector<RecomputeRule> entries = {{"*", {}}};
  bool operator==(const RecomputeRules&) const = default;
};

void to_json(nlohmann::json& json, const RecomputeRules& rules);
// Throws ConfigError("RULE; ADVICE").
void from_json(const nlohmann::json& json, RecomputeRules& rules);

// The strategy of each layer of the model. Throws ConfigError if an entry matches no block or only blocks that earlier
// entries match.
std::vector<Recompute> recompute_by_layer(const RecomputeRules& rules, const ModelSpec& spec);

}  // namespace shardline
