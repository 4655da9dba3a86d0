// Our ops compute their results and their gradients themselves. This ties the two together in torch's autograd graph.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace shardline {

// Makes `output` (computed without autograd) the result of an op on `inputs`: when the backward pass reaches it,
// `backward(d_output)` runs once and returns the gradients of the inputs, in their order (undefined: none needed). What
// the closure holds is freed right after it ran. Parameters are no inputs: their gradients are added by the closure.
// Without grad mode, `output` is returned as it is and `backward` is dropped.
using BackwardFunction = std::function<std::vector<at::Tensor>(const at::Tensor& d_output)>;
at::Tensor with_backward(at::Tensor output, const std::vector<at::Tensor>& inputs, const char* name,
                         BackwardFunction backward);

}  // namespace shardline
