// The factor by which losses are scaled before an fp16 backward pass, to keep small gradients from becoming zero, and
// how it changes after overflows: the rules of SageMaker's distributed optimizer, which are those of Megatron-LM and of
// Apex with a tolerance.
#pragma once
#include <cstdint>

namespace shardline {

struct LossScaleOptions {
  bool dynamic = true;  // false: the scale is constant
  double initial = 4294967296.0;
  double factor = 2;      // the scale shrinks and grows by this factor
  int64_t window = 1000;  // steps without overflow before the scale grows
  double least = 1;
  int64_t delayed_shift = 1;            // number of overflows before the scale shrinks
  bool consecutive_hysteresis = false;  // overflows are counted anew after each step without one
  bool operator==(const LossScaleOptions&) const = default;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  double scale() const { return state_.scale; }  // for the next step
  // Call it after each step's backward pass, with equal arguments on all ranks. A step that overflowed must not update
  // parameters.
  void update(bool overflowed);
  int64_t skipped() const { return state_.skipped; }  // steps that overflowed so far

  // Everything that changes from step to step.
  struct State {
    double scale = 1;
    int64_t step = 0, last_overflow = -1, hysteresis = 1, skipped = 0;
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  // A constant scale stays unchanged: the state may come from a run with another scale.
  void set_state(const State& state);

 private:
  LossScaleOptions options_;
  State state_;
};

}  // namespace shardline
