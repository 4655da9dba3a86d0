#include "optim/update/plateau_rate.h"

#include <algorithm>
#include <cmath>

namespace shardline {

bool PlateauRate::is_gain(double metric) const {
  const bool smaller = options_.mode == PlateauMode::min, is_share = options_.threshold_mode == ThresholdMode::rel;
  const double best = state_.best.value_or(smaller ? INFINITY : -INFINITY);
  const double threshold = smaller ? -options_.threshold : options_.threshold;
  const double level = is_share ? best * (1 + threshold) : best + threshold;
  return std::isfinite(metric) && (smaller ? metric < level : metric > level);
}

bool PlateauRate::observe(double metric) {
  if (is_gain(metric)) {
    state_.best = metric;
    state_.spent = 0;
  } else {
    ++state_.spent;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.spent = 0;
  }
  if (state_.spent <= options_.patience) return false;
  state_.cooldown = options_.cooldown;
  state_.spent = 0;
  const double reduced = std::max(state_.share * options_.factor, options_.floor);
  const bool falls = state_.share - reduced > options_.least_change;
  if (falls) state_.share = reduced;
  return falls;
}

}  // namespace shardline
