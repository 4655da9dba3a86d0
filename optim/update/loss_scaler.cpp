#include "optim/update/loss_scaler.h"

#include <algorithm>

namespace shardline {

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options), scale_(options.initial), hysteresis_(options.delayed_shift) {}

void LossScaler::update(bool overflowed) {
  skipped_ += overflowed;
  if (!options_.dynamic) return;
  if (overflowed) {
    if (options_.delayed_shift == 1 || hysteresis_ == 1)
      scale_ = std::max(scale_ / options_.factor, options_.least);
    else
      --hysteresis_;
    last_overflow_ = step_;
  } else {
    const bool grows = (step_ - last_overflow_) % options_.window == 0;
    if (grows || options_.consecutive_hysteresis) hysteresis_ = options_.delayed_shift;
    if (grows) scale_ *= options_.factor;
  }
  ++step_;
}

}  // namespace shardline
