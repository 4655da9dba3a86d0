// attention_forward and attention_backward of kernels.h on GPUs, in the way selected by attention_way. ScoreScale's
// divisor has no effect on flash attention or our kernels: scores stay in fp32 registers.
#pragma once
#include "tensor_parallel/kernels/kernels.h"

namespace shardline::cuda {

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout,
                                                     const AttentionPattern& pattern);
at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout, const AttentionPattern& pattern);

}  // namespace shardline::cuda
