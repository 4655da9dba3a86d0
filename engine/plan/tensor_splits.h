// Decides which units of a model (SplitUnit) the T ranks split and which stay whole on each rank, and why:
//   - smp_options.tensor_parallel_layers decides for the units that it names with true or false;
//   - other units are split if every rank gets a part;
//   - of these, a unit that it names with "auto" stays whole if a cluster or a profile gives prices by which a step is
//     then faster, and the model still fits.
// Units that share a parameter are decided as one.
#pragma once
#include "engine/config/keys/options.h"
#include "engine/plan/machines.h"
#include "engine/plan/resolve.h"
#include "engine/run/model_source.h"

namespace shardline {

// The choices that `spec` was made with.
SplitChoices splits_of(const ModelSpec& spec);

// The choices that the config makes by name, whatever T is; units with "auto" are left out. Throws ConfigError for
// patterns that match no unit, and if units with a shared parameter are asked to differ.
SplitChoices asked_splits(const Config& config, const ModelSpec& spec);

// asked_splits; in addition, units of which some of the T ranks would get no part stay whole. Does not compare prices.
SplitChoices splits_by_rule(const Config& config, const ModelSpec& spec);

// smp_options.tensor_parallel_layers with true or false in place of each "auto", as splits_by_rule decides.
TensorRules rules_without_prices(const Config& config, const ModelSpec& spec);

// The choice for every unit of the model on the T ranks. Throws ConfigError as asked_splits does.
SplitChoices decide_splits(const Config& config, const ModelSource& model, int world_size,
                           const Assumptions& assumed = {});

// The units of a plan as a readable table; equal units of consecutive layers are one row.
std::string splits_text(const std::vector<SplitUnit>& units);

}  // namespace shardline
