// After which steps a run logs, evaluates and saves, by the keys of transformers' TrainingArguments.
#pragma once
#include <cstdint>

#include "engine/config/keys/options.h"

namespace shardline {

struct RunSteps {
  int64_t total = 0;      // of the run, those before a resume included
  int64_t per_epoch = 0;  // at least 1
};

// Steps between two of them; 0 if the strategy names none. Keys below 1 are that share of all steps, rounded up.
int64_t steps_between_logs(const TrainingOptions& training, const RunSteps& run);
int64_t steps_between_evaluations(const TrainingOptions& training, const RunSteps& run);
int64_t steps_between_saves(const TrainingOptions& training, const RunSteps& run);

// The last step is evaluated and saved, too, unless the strategy is "no" (for evaluations: and do_eval is false).
// eval_delay are steps, or epochs with eval_strategy "epoch".
bool evaluates_after(const TrainingOptions& training, int64_t step, const RunSteps& run);
// Other than save_strategy "best".
bool saves_after(const TrainingOptions& training, int64_t step, const RunSteps& run);

}  // namespace shardline
