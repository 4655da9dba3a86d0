// Page-locked host memory, which devices access directly, for buffers that exist for the whole run. Torch's
// allocator of such memory rounds sizes up to powers of two and keeps freed blocks, which suits small, short-lived
// tensors.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// Returns a tensor of zeros, [elements], in page-locked memory of exactly that size. Throws RunError if it cannot be
// allocated. Freeing it waits for the device, except while an exception propagates: then the memory is kept until the
// process ends.
at::Tensor locked_zeros(int64_t elements, at::ScalarType type);

}  // namespace shardline
