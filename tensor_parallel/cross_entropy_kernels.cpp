#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"

namespace shardline {

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label) {
  return aten::cross_entropy_stats(logits, label);
}

void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale) {
  aten::cross_entropy_gradient_(logits, label, log_sum_exp, scale);
}

}  // namespace shardline
