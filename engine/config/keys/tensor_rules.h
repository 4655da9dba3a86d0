// What smp_options.tensor_parallel_layers says about the units that the T ranks split or have whole:
//   [{"pattern": "h.[0-3].mlp", "split": false}, {"pattern": "*attn", "split": "auto"}]
// Units are named by patterns of engine/config/keys/name_patterns.h, "h.3.attn"; of the entries that name a unit the
// last one counts.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/model_spec.h"

namespace shardline {

struct TensorRule {
  enum class Wish { split, whole, automatic };
  std::string pattern;
  Wish wish = Wish::split;
  bool operator==(const TensorRule&) const = default;
};

struct TensorRules {
  std::vector<TensorRule> entries;
  bool operator==(const TensorRules&) const = default;
};

void to_json(nlohmann::json& json, const TensorRules& rules);  // null without entries
// Throws ConfigError: the rule that the value breaks, and what to write, as "RULE; ADVICE".
void from_json(const nlohmann::json& json, TensorRules& rules);

// The rule that counts for each of the model's units, by their full names. Throws ConfigError, with the nearest name,
// for an entry that names no unit.
std::map<std::string, TensorRule> tensor_rules_by_unit(const TensorRules& rules, const ModelSpec& spec);

}  // namespace shardline
