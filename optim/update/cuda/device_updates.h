// The steps of an optimizer for which some accelerators have kernels; elsewhere, torch's operators do the same.
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

// The kernels for trained values of this type on the device; null: torch's operators are used.
const DeviceUpdates* updates_for(at::Device device, at::ScalarType trained);
// For tests: sets the kernels with which a device's fp32 tensors are updated.
void use_updates(at::DeviceType device, const DeviceUpdates* updates);

}  // namespace shardline
