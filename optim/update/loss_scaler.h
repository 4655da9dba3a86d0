// What losses are multiplied with before an fp16 backward pass, so that small gradients are still numbers, and how it
// follows overflows: the automaton of SageMaker's distributed optimizer, which is Megatron-LM's and Apex' with a
// tolerance.
#pragma once
#include <cstdint>

namespace shardline {

struct LossScaleOptions {
  bool dynamic = true;  // false: the scale stays
  double initial = 4294967296.0;
  double factor = 2;      // that it shrinks and grows by
  int64_t window = 1000;  // steps without overflow after which it grows
  double least = 1;
  int64_t delayed_shift = 1;            // overflows until it shrinks
  bool consecutive_hysteresis = false;  // only overflows without a good step between them count together
  bool operator==(const LossScaleOptions&) const = default;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  double scale() const { return scale_; }  // of the next step
  // After each step's backward pass, on every rank alike. A step that overflowed is not to be taken.
  void update(bool overflowed);
  int64_t skipped() const { return skipped_; }  // steps that overflowed so far

 private:
  LossScaleOptions options_;
  double scale_;
  int64_t step_ = 0, last_overflow_ = -1, hysteresis_;
  int64_t skipped_ = 0;
};

}  // namespace shardline
