// How our ops join the autograd graph of a program.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "core/model/backward.h"

namespace shardline {

// Whether the op must compute a gradient of this argument, which may be undefined.
bool needs_gradient(const at::Tensor& argument);

// Makes `output` (computed without autograd) the result of an op on `inputs` and `weights`, which may be undefined.
// `backward` returns the gradients of the inputs, undefined where none is needed, and adds those of the weights to
// `sums`: tensors of at least fp32, contiguous and with the sizes of the weights, or undefined where none is needed.
// The sum of a leaf that has a gradient is this gradient itself, so no tensor of its size is made. `saved`: see
// with_backward. A RunError is thrown if a call has changed one of them in place.
using OwnBackward = std::function<std::vector<at::Tensor>(const at::Tensor& d_output, const SavedTensors& saved,
                                                          const std::vector<at::Tensor>& sums)>;
at::Tensor with_own_backward(at::Tensor output, const std::vector<at::Tensor>& inputs,
                             const std::vector<at::Tensor>& weights, const SavedTensors& saved, const char* name,
                             OwnBackward backward);

}  // namespace shardline
