#include "optim/update/loss_scaler.h"

#include <algorithm>

namespace shardline {

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options), state_{.scale = options.initial, .hysteresis = options.delayed_shift} {}

void LossScaler::set_state(const State& state) {
  const double own = state_.scale;
  state_ = state;
  if (!options_.dynamic) state_.scale = own;
}

void LossScaler::update(bool overflowed) {
  state_.skipped += overflowed;
  if (!options_.dynamic) return;
  if (overflowed) {
    if (options_.delayed_shift == 1 || state_.hysteresis == 1)
      state_.scale = std::max(state_.scale / options_.factor, options_.least);
    else
      --state_.hysteresis;
    state_.last_overflow = state_.step;
  } else {
    const bool grows = (state_.step - state_.last_overflow) % options_.window == 0;
    if (grows || options_.consecutive_hysteresis) state_.hysteresis = options_.delayed_shift;
    if (grows) state_.scale *= options_.factor;
  }
  ++state_.step;
}

}  // namespace shardline
