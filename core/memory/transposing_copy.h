// Copies between tensors whose dimensions have different orders in memory, as those of a parameter and of its transpose
// in a file.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// to.copy_(from), which reads a cache line for every element if the dimension that is contiguous in `from` is another
// one than in `to`. For host tensors of one dtype, fp32 or float64, this copies small squares instead. from: any
// strides. to: of the same sizes; its elements do not overlap those of `from` or each other.
void copy_transposing(const at::Tensor& to, const at::Tensor& from);

}  // namespace shardline
