// Host memory that devices copy to and from by themselves, for buffers that live as long as the run. Torch's allocator
// of such memory rounds sizes up to powers of two and keeps what is freed, which suits small and short-lived tensors.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// [elements] of zeros in page-locked memory of that size. RunError if it cannot be had.
at::Tensor locked_zeros(int64_t elements, at::ScalarType type);

}  // namespace shardline
