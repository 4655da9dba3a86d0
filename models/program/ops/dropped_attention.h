// Attention with dropout on its probabilities; torch's own op would use torch's generator.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>

namespace shardline {

// `arguments`: those of aten::scaled_dot_product_attention. `drop` is called once with the probabilities [..., heads,
// queries, keys] and drops some of their elements. The probabilities are materialised.
at::Tensor dropped_attention(const torch::jit::Stack& arguments,
                             const std::function<at::Tensor(const at::Tensor& probabilities)>& drop);

}  // namespace shardline
