// The end of a head: turns the loss computed in the forward pass into a scalar from which backward runs.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"

namespace shardline {

// context.loss.sum times context.loss_scale, at least fp32 and in host memory (in a dry run, a meta tensor). Its
// gradient with respect to x is `gradient`.
at::Tensor scaled_loss(const at::Tensor& x, const at::Tensor& gradient, const MicrobatchContext& context);

}  // namespace shardline
