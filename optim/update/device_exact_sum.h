// ExactSum on an accelerator, with torch's operators: only integers are added, so the order of additions does not
// matter there either, and the device's atomics do not make the sum vary.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/numbers/exact_sum.h"

namespace shardline {

class DeviceExactSum {
 public:
  explicit DeviceExactSum(at::Device device);

  void add(const at::Tensor& values);          // [n] doubles on the device, none of them negative; at most 2^28 in all
  ExactSum on_host(const char* reason) const;  // waits for the device, as core/device/accelerator.h says

 private:
  at::Tensor words_;  // [kCopies, ExactSum::kWords] int64, whose sum is the number
};

}  // namespace shardline
