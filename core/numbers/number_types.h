// The types of a run's numbers.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace shardline {

struct NumberTypes {
  at::ScalarType values = at::kFloat;   // weights in forward and backward passes, and activations inside layers
  at::ScalarType borders = at::kFloat;  // activations between layers
  at::ScalarType exact = at::kFloat;    // trained parameters, gradients, optimizer states, saved files: at least fp32
  bool operator==(const NumberTypes&) const = default;
};

inline int64_t width_of(at::ScalarType type) {  // bytes of a number
  return c10::elementSize(type);
}

}  // namespace shardline
