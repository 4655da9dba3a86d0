// After which steps a run logs, evaluates and saves, according to the keys of transformers' TrainingArguments.
#pragma once
#include <cstdint>

#include "engine/config/keys/options.h"

namespace shardline {

struct RunSteps {
  int64_t total = 0;      // steps of the run, including those before it was resumed
  int64_t per_epoch = 0;  // 0: unknown
};

// logging_steps, eval_steps (unset: logging_steps) and save_steps, whatever the strategies are. Below 1 they are that
// share of all steps, rounded up.
int64_t logging_steps(const TrainingOptions& training, const RunSteps& run);
int64_t eval_steps(const TrainingOptions& training, const RunSteps& run);
int64_t save_steps(const TrainingOptions& training, const RunSteps& run);

// The end of a run within an epoch also counts as the end of this epoch.
bool logs_after(const TrainingOptions& training, int64_t step, const RunSteps& run);
// eval_delay counts steps, or epochs with eval_strategy "epoch". The last step is evaluated unless the delay is longer
// or the strategy is "no"; with do_eval, always.
bool evaluates_after(const TrainingOptions& training, int64_t step, const RunSteps& run);
// Does not count an evaluation that is due only because the run ends: a longer run with the same settings makes the
// same regular evaluations.
bool evaluates_regularly(const TrainingOptions& training, int64_t step, const RunSteps& run);
bool ever_evaluates_regularly(const TrainingOptions& training, const RunSteps& run);
// Always false for save_strategy "best"; with "steps" and "epoch", also true after the last step.
bool saves_after(const TrainingOptions& training, int64_t step, const RunSteps& run);

}  // namespace shardline
