// How layers with half-precision values compute; other layers ignore it.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>

namespace shardline {

struct HalfOptions {
  // The type of the borders between layers. Unset: the type of the values; fp32: residuals are added in fp32.
  std::optional<c10::ScalarType> border;
  bool attention_in_fp32 = false;
  bool query_key_layer_scaling = false;
  bool operator==(const HalfOptions&) const = default;
};

}  // namespace shardline
