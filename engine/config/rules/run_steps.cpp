#include "engine/config/rules/run_steps.h"

#include <algorithm>
#include <cmath>

namespace shardline {
namespace {

int64_t whole_steps(double steps_or_share, int64_t total_steps) {
  const double all = static_cast<double>(total_steps);
  const double steps = steps_or_share < 1 ? std::ceil(steps_or_share * all) : steps_or_share;
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

bool ends_epoch(int64_t step, const RunSteps& run) {
  return step % run.per_epoch == 0 || step == run.total;
}

}  // namespace

int64_t logging_steps(const TrainingOptions& t, const RunSteps& run) {
  return whole_steps(t.logging_steps, run.total);
}

int64_t eval_steps(const TrainingOptions& t, const RunSteps& run) {
  return whole_steps(t.eval_steps.value_or(t.logging_steps), run.total);
}

int64_t save_steps(const TrainingOptions& t, const RunSteps& run) {
  return whole_steps(t.save_steps, run.total);
}

bool logs_after(const TrainingOptions& t, int64_t step, const RunSteps& run) {
  switch (t.logging_strategy) {
    case LoggingStrategy::no:
      return false;
    case LoggingStrategy::steps:
      return step % logging_steps(t, run) == 0;
    case LoggingStrategy::epoch:
      return ends_epoch(step, run);
  }
  return false;
}

bool evaluates_after(const TrainingOptions& t, int64_t step, const RunSteps& run) {
  if (t.do_eval && step == run.total) return true;
  switch (t.eval_strategy) {
    case EvalStrategy::no:
      return false;
    case EvalStrategy::steps:
      return static_cast<double>(step) >= t.eval_delay && (step % eval_steps(t, run) == 0 || step == run.total);
    case EvalStrategy::epoch:
      return static_cast<double>(step) >= t.eval_delay * static_cast<double>(run.per_epoch) && ends_epoch(step, run);
  }
  return false;
}

bool evaluates_regularly(const TrainingOptions& t, int64_t step, const RunSteps& run) {
  switch (t.eval_strategy) {
    case EvalStrategy::no:
      return false;
    case EvalStrategy::steps:
      return static_cast<double>(step) >= t.eval_delay && step % eval_steps(t, run) == 0;
    case EvalStrategy::epoch:
      return static_cast<double>(step) >= t.eval_delay * static_cast<double>(run.per_epoch) &&
             step % run.per_epoch == 0;
  }
  return false;
}

bool ever_evaluates_regularly(const TrainingOptions& t, const RunSteps& run) {
  for (int64_t step = run.total; step > 0; --step)
    if (evaluates_regularly(t, step, run)) return true;
  return false;
}

bool saves_after(const TrainingOptions& t, int64_t step, const RunSteps& run) {
  switch (t.save_strategy) {
    case SaveStrategy::no:
    case SaveStrategy::best:
      return false;
    case SaveStrategy::steps:
      return step % save_steps(t, run) == 0 || step == run.total;
    case SaveStrategy::epoch:
      return ends_epoch(step, run);
  }
  return false;
}

}  // namespace shardline
