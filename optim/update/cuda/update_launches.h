// Functions that start the kernels of the gradient norm and of Adam. They take pointers to device memory, sizes and a
// stream, and do not depend on torch. Numbers are fp32, like everything that is trained on accelerators, except for
// copies of values in half precision.
#pragma once
#include <cstdint>
#include <vector>

#include "core/cuda/launch_log.h"
#include "core/cuda/number.h"

namespace shardline::cuda {

// Adds the sums of squares of a gradient's leaves to words, as core/numbers/exact_sum.h adds them and cuts them into
// leaves, to the same bits as on the host. `count` is a multiple of a leaf; `words` are zero before the first call. At
// most 2^30 leaves may be added in all.
void add_exact_squares(const float* gradient, int64_t count, int64_t* words, Stream stream);

// factor = min(1, most / (norm + 1e-6)) / scale, or 1 / scale where `most` is 0; norm: the root of the number in
// `words` (ExactSum::kWords of them, as above), divided by scale.
struct ClipFactor {
  const int64_t* words;
  double scale, most;
  float* factor;
};
void clip_factor(const ClipFactor& a, Stream stream);

// One range for Adam. Counts are multiples of four; ranges start at multiples of 16 bytes, those of `rounded` at
// multiples of 8.
struct AdamRange {
  float* values;
  const float* gradients;
  float *first, *second;  // moments
  void* rounded;          // the updated values in half precision; null if not wanted
  int64_t count;
  bool decays;
};
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step;                                // from 1
  double gradient_factor, max_gradient_value;  // as take_gradients (optim/update/optimizer.h) applies them
  bool decoupled;                              // weight decay: AdamW
  const float* device_factor = nullptr;        // on the device; replaces gradient_factor
};
// Updates all ranges, many in one launch. rounded: the type of the ranges' rounded values.
void adam_step(const std::vector<AdamRange>& ranges, const AdamStep& step, Number rounded, Stream stream);

}  // namespace shardline::cuda
