#include "optim/update/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/error.h"

namespace shardline {
namespace {

using Options = LearningRateOptions;

// A cosine from 1 to 0, with `cycles` waves while progress goes from 0 to 1.
double cosine_fall(double cycles, double progress) {
  return 0.5 * (1 + std::cos(M_PI * cycles * 2 * progress));
}

double above(double floor, double factor) {
  return factor * (1 - floor) + floor;
}

double steps_behind_warmup(const Options& o) {
  return std::max(1.0, o.total_steps - o.warmup_steps);
}

// The progress of step `done` between warm-up and end; continues past the end.
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

// Here steps count from 1, so that both ends are included.
double cosine_warmup_with_min_lr(const Options& o, double done) {
  if (done >= o.warmup_steps) return cosine_with_min_lr(o, done + 1);
  if (o.warmup_start < 0) return straight_warmup(o, done + 1);
  return above(o.warmup_start, done / std::max(1.0, o.warmup_steps - 1));
}

// Rises from 0 to 1 with progress.
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

// All shapes but the plateau stop falling when the warm-up's number of steps is left, so that a straight line never
// reaches 0.
double annealing(const Options& o, double done) {
  const double end = o.decay_steps;
  const double reached = std::min(done, end - o.warmup_steps);
  if (o.warmup_steps > 0 && done <= o.warmup_steps) return reached / o.warmup_steps;
  const double share = (reached - o.warmup_steps) / end;
  const double plateau_end = o.warmup_steps + o.plateau_steps;
  double factor = 1;
  if (o.decay_shape == RateShape::linear) factor = 1 - share;
  if (o.decay_shape == RateShape::cosine) factor = cosine_fall(0.5, share);
  if (o.decay_shape == RateShape::exponential) factor = std::exp(-0.693 * share);  // to a half
  if (o.decay_shape == RateShape::plateau && done > plateau_end) factor = (end - done) / (end - plateau_end);
  return std::max(factor, o.floor);
}

struct Formula {
  bool has_own_warmup;
  std::function<double(const Options&, double)> factor;  // of the peak, when `done` steps are done
};

const std::map<std::string, Formula>& formulas() {
  static const auto one = [](const Options&, double) { return 1.0; };
  static const std::map<std::string, Formula> formulas = {
      {"linear", {false, linear}},
      {"cosine", {false, [](const Options& o, double done) { return std::max(0.0, cosine(o, done)); }}},
      {"cosine_with_restarts", {false, cosine_with_restarts}},
      {"polynomial", {false, polynomial}},
      {"constant", {true, one}},
      {"constant_with_warmup", {false, one}},
      {"inverse_sqrt", {false, inverse_sqrt}},
      {"cosine_with_min_lr", {false, cosine_with_min_lr}},
      {"cosine_warmup_with_min_lr", {true, cosine_warmup_with_min_lr}},
      {"warmup_stable_decay", {true, warmup_stable_decay}},
      {"annealing", {true, annealing}}};
  return formulas;
}

}  // namespace

double learning_rate(const LearningRateOptions& options, int64_t step) {
  const auto formula = formulas().find(options.type);
  SL_ASSERT(formula != formulas().end(), "unknown learning-rate schedule ", options.type);
  const double done = step - 1;
  if (!formula->second.has_own_warmup && done < options.warmup_steps)
    return options.peak * done / std::max(1.0, options.warmup_steps);
  return options.peak * formula->second.factor(options, done);
}

}  // namespace shardline
