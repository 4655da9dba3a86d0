// What smp_options.tensor_parallel_layers says about the units that the T ranks split or have whole:
//   [{"pattern": "h.[0-3].mlp", "split": false}, {"pattern": "*attn", "split": "auto"}]
// Units are named by patterns of engine/config/rules/name_patterns.h, "h.3.attn"; of the entries that name a unit the
// last one counts.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/model_spec.h"
#include "engine/config/keys/options.h"

namespace shardline {

struct TensorRule {
  enum class Wish { split, whole, automatic };
  std::string pattern;
  Wish wish = Wish::split;
};

// Whether each of the T ranks holds a part of the rows at borders.
inline bool is_sequence_parallel(const SmpOptions& smp) {
  return smp.optimize == "memory" && smp.tensor_parallel_degree > 1;
}

// null: none. Throws ConfigError: the rule that the value breaks, and what to write, as "RULE; ADVICE".
std::vector<TensorRule> tensor_rules(const nlohmann::json& value);

// The rule that counts for each of the model's units, by their full names. Throws ConfigError, with the nearest name,
// for an entry that names no unit.
std::map<std::string, TensorRule> tensor_rules_by_unit(const nlohmann::json& value, const ModelSpec& spec);

}  // namespace shardline
