#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"

namespace shardline {

std::tuple<at::Tensor, at::Tensor> dropout_attention_forward(const at::Tensor& q, const at::Tensor& k,
                                                             const at::Tensor& v, double scale,
                                                             const AttentionDropout& dropout) {
  return aten::dropout_attention_forward(q, k, v, scale, dropout);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> dropout_attention_backward(const at::Tensor& d_out, const at::Tensor& q,
                                                                          const at::Tensor& k, const at::Tensor& v,
                                                                          const at::Tensor& out,
                                                                          const at::Tensor& log_sum_exp, double scale,
                                                                          const AttentionDropout& dropout) {
  return aten::dropout_attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout);
}

}  // namespace shardline
