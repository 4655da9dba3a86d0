// Enables torch's autocast in a scope: products run in half precision, and ops that need more precision in fp32.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace shardline {

class AutocastMode {
 public:
  // half: the type of products; unset: everything runs in the type of its tensors.
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
