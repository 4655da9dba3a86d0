// The entries of smp_options.tensor_parallel_layers, which decide whether the T ranks split a unit or each hold the
// whole unit:
//   [{"pattern": "h.[0-3].mlp", "split": false}, {"pattern": "*attn", "split": "auto"}]
// core/model/name_pattern.h describes the patterns for units' names such as "h.3.attn" and for modules that contain
// them, such as "h.3"; the last entry that matches applies.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "core/model/name_pattern.h"

namespace shardline {

struct TensorRule {
  enum class Wish { split, whole, automatic };
  NamePattern pattern;
  Wish wish = Wish::split;
  bool operator==(const TensorRule&) const = default;
};

struct TensorRules {
  std::vector<TensorRule> entries;
  bool operator==(const TensorRules&) const = default;
};

void to_json(nlohmann::json& json, const TensorRules& rules);  // null if there are no entries
// Throws ConfigError("RULE; ADVICE").
void from_json(const nlohmann::json& json, TensorRules& rules);

// The rule that applies to each of the model's units, by full name. Throws ConfigError for an entry that matches no
// unit.
std::map<std::string, TensorRule> tensor_rules_by_unit(const TensorRules& rules, const ModelSpec& spec);

}  // namespace shardline
