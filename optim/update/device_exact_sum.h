// ExactSum on an accelerator, with torch's operators. Only integers are added, so the order of additions does not
// matter, and atomics on the device give the same sum every time.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/numbers/exact_sum.h"

namespace shardline {

class DeviceExactSum {
 public:
  explicit DeviceExactSum(at::Device device);

  void add(const at::Tensor& values);          // [n] doubles on the device, none negative; at most 2^28 in total
  ExactSum on_host(const char* reason) const;  // waits for the device; for `reason`, see core/device/accelerator.h

 private:
  at::Tensor words_;  // [kCopies, ExactSum::kWords] int64; their sum represents the number
};

}  // namespace shardline
