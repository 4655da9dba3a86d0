// torch's autocast for a scope: products compute in half precision, and what needs more in fp32.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace shardline {

class AutocastMode {
 public:
  // half: the type of the products; unset: everything computes in the type of its tensors.
  AutocastMode(c10::DeviceType device, std::optional<c10::ScalarType> half);
  ~AutocastMode();
  AutocastMode(const AutocastMode&) = delete;
  AutocastMode& operator=(const AutocastMode&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType former_;
};

}  // namespace shardline
