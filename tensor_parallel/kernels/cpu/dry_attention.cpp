#include "tensor_parallel/kernels/cpu/dry_attention.h"

#include <ATen/ops/empty.h>

#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/device_attention.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

int64_t rounded_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Torch accumulates dq and the sums over features in fp32, in tensors with lengths rounded up to multiples of 128 and
// heads to multiples of 32 (mha_bwd in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp). It returns
// three gradients, which are then copied into one tensor.
at::Tensor dry_flash_backward(const at::Tensor& q) {
  std::array<at::Tensor, 3> gradients;
  {
    const int64_t rows = q.size(0) * q.size(1) * rounded_up(q.size(2), 128);
    const at::TensorOptions fp32 = q.options().dtype(at::kFloat);
    const at::Tensor along = at::empty({rows}, fp32), dq = at::empty({rows * rounded_up(q.size(3), 32)}, fp32);
    for (at::Tensor& gradient : gradients) gradient = at::empty(q.sizes(), q.options());
  }
  return side_by_side(gradients[0], gradients[1], gradients[2]);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> dry_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                         const ScoreScale& scale, const AttentionDropout& dropout,
                                                         const AttentionPattern& pattern) {
  if (attention_way(q, dropout, pattern) == AttentionWay::aten)
    return aten::attention_forward(q, k, v, scale, dropout, pattern);
  return empty_attention_results(q);
}

at::Tensor dry_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& out, const at::Tensor& log_sum_exp,
                                  const ScoreScale& scale, const AttentionDropout& dropout,
                                  const AttentionPattern& pattern) {
  switch (attention_way(q, dropout, pattern)) {
    case AttentionWay::flash:
      return dry_flash_backward(q);
    case AttentionWay::kernels:
      return empty_attention_gradients(q).d_qkv;
    case AttentionWay::aten:
      break;
  }
  return aten::attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout, pattern);
}

}  // namespace shardline
