// Attention with dropout on its probabilities, which torch's own op would draw from torch's generator.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>

namespace shardline {

// `arguments`: those of aten::scaled_dot_product_attention. `drop` is called once with the probabilities [..., heads,
// queries, keys], of which it drops elements. The probabilities are in memory.
at::Tensor dropped_attention(const torch::jit::Stack& arguments,
                             const std::function<at::Tensor(const at::Tensor& probabilities)>& drop);

}  // namespace shardline
