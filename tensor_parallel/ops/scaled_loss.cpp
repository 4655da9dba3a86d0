#include "tensor_parallel/ops/scaled_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include "core/model/backward.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {

at::Tensor scaled_loss(const at::Tensor& x, const at::Tensor& gradient, const MicrobatchContext& context) {
  const auto loss = at::scalar_tensor(context.loss.sum * context.loss_scale,
                                      at::TensorOptions(wide_type(x)).device(x.is_meta() ? at::kMeta : at::kCPU));
  const at::AutoGradMode grad(true);
  return with_backward(loss, {x}, {gradient}, "ScaledLoss", [](const at::Tensor& d_loss, const SavedTensors& saved) {
    const bool as_it_is = d_loss.is_meta() || d_loss.item<double>() == 1;
    return std::vector<at::Tensor>{as_it_is ? saved[0] : saved[0] * d_loss};
  });
}

}  // namespace shardline
