// Common parts of layers whose gradients are computed by torch's autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "core/model/layer.h"

namespace shardline {

// Lets autograd add the gradients of leaves to those of the parameters, pairwise. A leaf may have its parameter's
// values in other sizes. Call it before each forward pass.
void connect_gradients(const std::vector<at::Tensor>& leaves, const std::vector<Parameter*>& parameters);

// The result for a microbatch without rows: zeros. The gradients of `input` are zeros, too, and parameters get none.
at::Tensor without_rows(const Border& input, const std::vector<int64_t>& sizes, const at::TensorOptions& options);

// The end of a last layer. sum: the sum of a microbatch's losses, a scalar with a graph; weight: a scalar. Stores both
// in the context; in Mode::train returns the scaled loss, otherwise nothing.
Border summed_loss(const at::Tensor& sum, const at::Tensor& weight, MicrobatchContext& context);

}  // namespace shardline
