// The steps of an optimizer for which some accelerators have kernels; otherwise, torch's operators are used.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "optim/update/cuda/update_launches.h"

namespace shardline {

// A range on the device that Adam updates: fp32, [elements] each. rounded: the updated values in half precision, or
// undefined.
struct AdamTensors {
  at::Tensor values, gradients, first, second, rounded;
  bool decays;
};
struct DeviceUpdates {
  // words [ExactSum::kWords], int64, += the squares of a gradient, added leaf by leaf as in core/numbers/exact_sum.h.
  void (*add_exact_squares)(const at::Tensor& gradient, const at::Tensor& words);
  // The clip factor of gradients whose sum of squares is `words`, see cuda::ClipFactor: [], fp32.
  at::Tensor (*clip_factor)(const at::Tensor& words, double scale, double most);
  // Updates all ranges. device_factor: [], fp32, used in place of step.gradient_factor, or undefined.
  void (*adam_step)(const std::vector<AdamTensors>& ranges, cuda::AdamStep step, const at::Tensor& device_factor);
};

// The kernels for trained values of this type on the device; null: use torch's operators.
const DeviceUpdates* updates_for(at::Device device, at::ScalarType trained);
// For tests: sets the kernels that update fp32 tensors of this device type.
void use_updates(at::DeviceType device, const DeviceUpdates* updates);

}  // namespace shardline
