// Which units of a model (SplitUnit) the T ranks split and which stay whole on each of them, and why:
//   - as smp_options.tensor_parallel_layers asks;
//   - where it asks nothing, a unit is split if every rank gets a part of it;
//   - where it asks for "auto" and a cluster or a profile gives prices, a unit stays whole if that takes less time.
// Units with tied parameters are decided as one.
#pragma once
#include "engine/config/keys/options.h"
#include "engine/plan/machines.h"
#include "engine/plan/resolve.h"
#include "engine/run/model_source.h"

namespace shardline {

// As the units of `spec` are.
SplitChoices splits_of(const ModelSpec& spec);

// What the config asks for by name, whatever T is; "auto" leaves a unit split. Throws ConfigError for patterns that
// name nothing, and where tied units are asked to differ.
SplitChoices asked_splits(const Config& config, const ModelSpec& spec);

// And with what stays whole because some of the T ranks would have no part of it; nothing is weighed by prices.
SplitChoices splits_by_rule(const Config& config, const ModelSpec& spec);

// All units of the model on the T ranks. Throws ConfigError as asked_splits does.
SplitChoices decide_splits(const Config& config, const ModelSource& model, int world_size,
                           const Assumptions& assumed = {});

// "units" of a plan as a readable table: equal ones of consecutive layers in one row.
std::string splits_text(const std::vector<SplitUnit>& units);

}  // namespace shardline
