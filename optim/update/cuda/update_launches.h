// Starts the kernels of the gradient norm and of Adam: pointers to device memory, sizes, a stream; no torch. Numbers
// are fp32, as everything that is trained on accelerators.
#pragma once
#include <cstdint>
#include <vector>

#include "core/cuda/launch_log.h"

namespace shardline::cuda {

// words += the sums of squares of the leaves of a gradient, as core/numbers/exact_sum.h adds them and cuts them into
// leaves: to the same bits as on the host. `count` is a multiple of a leaf; `words` are zero before the first call.
// Together at most 2^30 leaves.
void add_exact_squares(const float* gradient, int64_t count, int64_t* words, Stream stream);

// One range for Adam. Counts are multiples of four, and starts of 16 bytes.
struct AdamRange {
  float *values, *gradients, *first, *second;  // moments
  int64_t count;
  bool decays;
};
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  int64_t step;                                // from 1
  double gradient_factor, max_gradient_value;  // as take_gradients (optim/update/optimizer.h) applies them
  bool decoupled;                              // weight decay: AdamW
};
// Updates all ranges, many in one launch, and leaves gradients clipped.
void adam_step(const std::vector<AdamRange>& ranges, const AdamStep& step, Stream stream);

}  // namespace shardline::cuda
