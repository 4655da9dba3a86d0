#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"

namespace shardline {

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon) {
  return aten::layer_norm_forward(x, weight, bias, epsilon);
}

at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows) {
  return aten::layer_norm_backward(dy, x, mean, rstd, weight, weight_grad, bias_grad, valid_rows);
}

}  // namespace shardline
