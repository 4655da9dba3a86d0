// What optimizers have kernels for on some accelerators; torch's operators do the same elsewhere.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "optim/update/cuda/update_launches.h"

namespace shardline {

// A range on the device that Adam updates: fp32, [elements] each.
struct AdamTensors {
  at::Tensor values, gradients, first, second;
  bool decays;
};
struct DeviceUpdates {
  // words [ExactSum::kWords], int64, += the squares of a gradient, as core/numbers/exact_sum.h adds them leaf by leaf.
  void (*add_exact_squares)(const at::Tensor& gradient, const at::Tensor& words);
  // All ranges at once.
  void (*adam_step)(const std::vector<AdamTensors>& ranges, const cuda::AdamStep& step);
};

// For tensors like this one; null: torch's operators.
const DeviceUpdates* updates_for(const at::Tensor& tensor);
// For tests: what a device's fp32 tensors are updated with.
void use_updates(at::DeviceType device, const DeviceUpdates* updates);

}  // namespace shardline
