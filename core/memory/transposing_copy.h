// Copies between tensors whose dimensions are in different orders in memory, such as a parameter and its transpose in a
// file.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// Does the same as to.copy_(from), which reads a cache line per element if the contiguous dimensions of `from` and `to`
// differ. For host tensors of one dtype, fp32 or float64, this copies small squares instead. from: any strides. to: the
// same sizes; its elements must not overlap those of `from` or each other.
void copy_transposing(const at::Tensor& to, const at::Tensor& from);

}  // namespace shardline
