// Attention of a program, computed by our kernels (tensor_parallel/kernels).
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

// Whether own_attention computes aten::scaled_dot_product_attention of these arguments, without its argument dropout_p
// but with this dropout, and has a kernel for it.
bool is_own_attention(const torch::jit::Stack& arguments, const AttentionDropout& dropout);

at::Tensor own_attention(const torch::jit::Stack& arguments, const AttentionDropout& dropout);

}  // namespace shardline
