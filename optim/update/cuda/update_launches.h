// Functions that start the kernels for the gradient norm and for Adam. They take pointers to device memory, sizes and a
// stream, and do not depend on torch. Numbers are fp32, like everything that is trained on accelerators, except for
// copies of values in half precision.
#pragma once
#include <cstdint>
#include <vector>

#include "core/cuda/launch_log.h"
#include "core/cuda/number.h"

namespace shardline::cuda {

// Adds the sums of squares of a gradient's leaves to words. It forms leaves and adds them as core/numbers/exact_sum.h
// does, with the same bits as on the host. `count` must be a multiple of a leaf, and `words` zero before the first
// call. At most 2^30 leaves may be added in total.
void add_exact_squares(const float* gradient, int64_t count, int64_t* words, Stream stream);

// factor = min(1, most / (norm + 1e-6)) / scale, or 1 / scale if `most` is 0. norm: the root of the number in `words`
// (ExactSum::kWords of them, as above), divided by scale.
struct ClipFactor {
  const int64_t* words;
  double scale, most;
  float* factor;
};
void clip_factor(const ClipFactor& a, Stream stream);

// One range for Adam. Counts are multiples of four; ranges are aligned to 16 bytes, `rounded` to 8
// bytes.
struct AdamRange {
  float* values;
  const float* gradients;
  float *first, *second;  // moments
  void* rounded;          // the updated values in half precision; null if not needed
  int64_t count;
  bool decays;
};
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step;                                // from 1
  double gradient_factor, max_gradient_value;  // applied as by take_gradients (optim/update/optimizer.h)
  bool decoupled;                              // decoupled weight decay: AdamW
  const float* device_factor = nullptr;        // on the device; replaces gradient_factor
};
// Updates all ranges, many per launch. rounded: the type of the ranges' rounded values.
void adam_step(const std::vector<AdamRange>& ranges, const AdamStep& step, Number rounded, Stream stream);

}  // namespace shardline::cuda
