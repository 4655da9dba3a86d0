#include "optim/update/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {
namespace {

using Options = LearningRateOptions;

// A cosine that falls from 1 to 0, with `cycles` waves as progress goes from 0 to 1.
double cosine_fall(double cycles, double progress) {
  return 0.5 * (1 + std::cos(M_PI * cycles * 2 * progress));
}

double above(double floor, double factor) {
  return factor * (1 - floor) + floor;
}

double steps_behind_warmup(const Options& o) {
  return std::max(1.0, o.total_steps - o.warmup_steps);
}

// Progress between warm-up and end after `done` steps; continues past the end.
double progress(const Options& o, double done) {
  return (done - o.warmup_steps) / steps_behind_warmup(o);
}

double straight_warmup(const Options& o, double done) {
  return done / std::max(1.0, o.warmup_steps);
}

double linear(const Options& o, double done) {
  return std::max(0.0, o.total_steps - done) / steps_behind_warmup(o);
}

double cosine(const Options& o, double done) {
  return cosine_fall(o.cycles, progress(o, done));
}

double cosine_with_restarts(const Options& o, double done) {
  const double share = progress(o, done);
  return share >= 1 ? 0 : cosine_fall(0.5, std::fmod(o.cycles * share, 1.0));
}

double polynomial(const Options& o, double done) {
  return above(o.floor, std::pow(linear(o, done), o.power));
}

double inverse_sqrt(const Options& o, double done) {
  return 1 / std::sqrt((done + o.timescale - o.warmup_steps) / o.timescale);
}

double cosine_with_min_lr(const Options& o, double done) {
  return std::max(0.0, above(o.floor, cosine(o, done)));
}

// Steps count from 1 here, so that both ends are included.
double cosine_warmup_with_min_lr(const Options& o, double done) {
  if (done >= o.warmup_steps) return cosine_with_min_lr(o, done + 1);
  if (o.warmup_start < 0) return straight_warmup(o, done + 1);
  return above(o.warmup_start, done / std::max(1.0, o.warmup_steps - 1));
}

// Rises from 0 to 1 as progress does.
double rise(RateShape shape, double progress) {
  if (shape == RateShape::linear) return progress;
  if (shape == RateShape::cosine) return 0.5 * (1 - std::cos(M_PI * progress));
  return 1 - std::sqrt(1 - progress);
}

double warmup_stable_decay(const Options& o, double done) {
  if (done < o.warmup_steps) return std::max(0.0, above(o.floor, rise(o.warmup_shape, straight_warmup(o, done))));
  const double decayed = done - o.warmup_steps - o.stable_steps;
  if (decayed < 0) return 1;
  const double steps = o.decay_steps;
  if (decayed >= steps) return o.floor;
  const double share = decayed / std::max(1.0, steps);
  const double left = o.decay_shape == RateShape::cosine   ? cosine_fall(o.cycles, share)
                      : o.decay_shape == RateShape::linear ? 1 - share
                                                           : 1 - std::sqrt(share);
  return std::max(0.0, above(o.floor, left));
}

// All shapes but the plateau stop falling when only as many steps are left as the warm-up had, so that a straight line
// never reaches 0.
double annealing(const Options& o, double done) {
  const double end = o.decay_steps;
  const double reached = std::min(done, end - o.warmup_steps);
  if (o.warmup_steps > 0 && done <= o.warmup_steps) return reached / o.warmup_steps;
  const double share = (reached - o.warmup_steps) / end;
  const double plateau_end = o.warmup_steps + o.plateau_steps;
  double factor = 1;
  if (o.decay_shape == RateShape::linear) factor = 1 - share;
  if (o.decay_shape == RateShape::cosine) factor = cosine_fall(0.5, share);
  if (o.decay_shape == RateShape::exponential) factor = std::exp(-0.693 * share);  // falls to a half
  if (o.decay_shape == RateShape::plateau && done > plateau_end) factor = (end - done) / (end - plateau_end);
  return std::max(factor, o.floor);
}

double constant(const Options&, double) {
  return 1;
}

std::map<std::string, RateFormula>& added_schedules() {
  static std::map<std::string, RateFormula> all;
  return all;
}

struct Formula {
  bool has_own_warmup;
  double (*factor)(const Options&, double);  // the fraction of the peak after `done` steps
};

Formula formula_of(RateSchedule type) {
  switch (type) {
    case RateSchedule::linear:
      return {false, linear};
    case RateSchedule::cosine:
      return {false, [](const Options& o, double done) { return std::max(0.0, cosine(o, done)); }};
    case RateSchedule::cosine_with_restarts:
      return {false, cosine_with_restarts};
    case RateSchedule::polynomial:
      return {false, polynomial};
    case RateSchedule::constant:
    case RateSchedule::reduce_lr_on_plateau:
      return {true, constant};
    case RateSchedule::constant_with_warmup:
      return {false, constant};
    case RateSchedule::inverse_sqrt:
      return {false, inverse_sqrt};
    case RateSchedule::cosine_with_min_lr:
      return {false, cosine_with_min_lr};
    case RateSchedule::cosine_warmup_with_min_lr:
      return {true, cosine_warmup_with_min_lr};
    case RateSchedule::warmup_stable_decay:
      return {true, warmup_stable_decay};
    case RateSchedule::annealing:
      return {true, annealing};
    case RateSchedule::added:
      return {true, [](const Options& o, double done) {
                return o.formula(std::llround(done) + 1, std::llround(o.warmup_steps), o.total_steps);
              }};
  }
  return {};
}

}  // namespace

void add_rate_schedule(const std::string& name, RateFormula formula) {
  if (!added_schedules().emplace(name, std::move(formula)).second)
    throw ConfigError(cat("there is already a learning-rate schedule \"", name, "\"; give the new one another name"));
}

const std::map<std::string, RateFormula>& added_rate_schedules() {
  return added_schedules();
}

double learning_rate(const LearningRateOptions& options, int64_t step) {
  const Formula formula = formula_of(options.type);
  const double done = step - 1;
  if (!formula.has_own_warmup && done < options.warmup_steps)
    return options.peak * done / std::max(1.0, options.warmup_steps);
  return options.peak * formula.factor(options, done);
}

}  // namespace shardline
