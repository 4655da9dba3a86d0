#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"

namespace shardline {

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows) {
  return aten::bias_dropout_add_forward(x, bias, residual, rows);
}

at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows) {
  return aten::bias_dropout_backward(dy, rows, bias_grad, valid_rows);
}

}  // namespace shardline
