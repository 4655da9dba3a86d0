// The learning-rate schedule that lr_scheduler_type, lr_scheduler_kwargs, learning_rate and warmup_steps define.
#pragma once
#include <optional>

#include "engine/config/keys/options.h"
#include "optim/update/learning_rate.h"
#include "optim/update/plateau_rate.h"

namespace shardline {

// total_steps: steps of the run, if known. Throws ConfigError("RULE; ADVICE") for arguments that are missing, that the
// schedule does not have, or that contradict each other.
LearningRateOptions learning_rate_options(const TrainingOptions& training, std::optional<int64_t> total_steps);

// The arguments of reduce_lr_on_plateau. Throws ConfigError("RULE; ADVICE").
PlateauOptions plateau_options(const TrainingOptions& training);

// Throws ConfigError("RULE; ADVICE").
void check_warmup_steps(double steps);

}  // namespace shardline
