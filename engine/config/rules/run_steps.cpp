#include "engine/config/rules/run_steps.h"

#include <algorithm>
#include <cmath>

namespace shardline {
namespace {

int64_t whole_steps(double steps_or_share, int64_t total_steps) {
  const double steps =
      steps_or_share < 1 ? std::ceil(steps_or_share * static_cast<double>(total_steps)) : steps_or_share;
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

bool is_multiple(int64_t step, int64_t between) {
  return between > 0 && step % between == 0;
}

}  // namespace

int64_t steps_between_logs(const TrainingOptions& t, const RunSteps& run) {
  switch (t.logging_strategy) {
    case LoggingStrategy::no:
      return 0;
    case LoggingStrategy::steps:
      return whole_steps(t.logging_steps, run.total);
    case LoggingStrategy::epoch:
      return run.per_epoch;
  }
  return 0;
}

int64_t steps_between_evaluations(const TrainingOptions& t, const RunSteps& run) {
  switch (t.eval_strategy) {
    case EvalStrategy::no:
      return 0;
    case EvalStrategy::steps:
      return whole_steps(t.eval_steps.value_or(t.logging_steps), run.total);
    case EvalStrategy::epoch:
      return run.per_epoch;
  }
  return 0;
}

int64_t steps_between_saves(const TrainingOptions& t, const RunSteps& run) {
  switch (t.save_strategy) {
    case SaveStrategy::no:
    case SaveStrategy::best:
      return 0;
    case SaveStrategy::steps:
      return whole_steps(t.save_steps, run.total);
    case SaveStrategy::epoch:
      return run.per_epoch;
  }
  return 0;
}

bool evaluates_after(const TrainingOptions& t, int64_t step, const RunSteps& run) {
  if (t.eval_strategy == EvalStrategy::no) return t.do_eval && step == run.total;
  const bool by_epochs = t.eval_strategy == EvalStrategy::epoch;
  const double done =
      by_epochs ? static_cast<double>(step) / static_cast<double>(run.per_epoch) : static_cast<double>(step);
  return done >= t.eval_delay && (is_multiple(step, steps_between_evaluations(t, run)) || step == run.total);
}

bool saves_after(const TrainingOptions& t, int64_t step, const RunSteps& run) {
  const int64_t between = steps_between_saves(t, run);
  return is_multiple(step, between) || (between > 0 && step == run.total);
}

}  // namespace shardline
