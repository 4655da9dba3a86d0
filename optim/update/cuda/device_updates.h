// What optimizers have kernels for on some accelerators; elsewhere torch's operators do the same.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "optim/update/cuda/update_launches.h"

namespace shardline {

// A range on the device that Adam updates: fp32, [elements] each; rounded: the updated values in half precision, or
// undefined.
struct AdamTensors {
  at::Tensor values, gradients, first, second, rounded;
  bool decays;
};
struct DeviceUpdates {
  // words [ExactSum::kWords], int64, += the squares of a gradient, as core/numbers/exact_sum.h adds them leaf by leaf.
  void (*add_exact_squares)(const at::Tensor& gradient, const at::Tensor& words);
  // The clip factor of gradients whose squares are `words`, as cuda::ClipFactor says: [], fp32.
  at::Tensor (*clip_factor)(const at::Tensor& words, double scale, double most);
  // All ranges at once. device_factor: [], fp32, in place of step.gradient_factor, or undefined.
  void (*adam_step)(const std::vector<AdamTensors>& ranges, cuda::AdamStep step, const at::Tensor& device_factor);
};

// For what is trained on the device in this type; null: torch's operators.
const DeviceUpdates* updates_for(at::Device device, at::ScalarType trained);
// For tests: sets what a device's fp32 tensors are updated with.
void use_updates(at::DeviceType device, const DeviceUpdates* updates);

}  // namespace shardline
