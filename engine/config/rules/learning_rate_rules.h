// What lr_scheduler_type, lr_scheduler_kwargs, learning_rate and warmup_steps of a config come to.
#pragma once
#include <optional>

#include "engine/config/keys/options.h"
#include "optim/update/learning_rate.h"

namespace shardline {

// total_steps: of the run, where it is known. Throws ConfigError("RULE; ADVICE") for arguments that are missing, that
// the schedule does not take, or that contradict each other.
LearningRateOptions learning_rate_options(const TrainingOptions& training, std::optional<int64_t> total_steps);

}  // namespace shardline
