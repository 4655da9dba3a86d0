// attention_forward and attention_backward of kernels.h in a dry run (models/graph/dry_run.h) of an accelerator: they
// allocate and free what the accelerator would, but compute nothing.
#pragma once
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

std::tuple<at::Tensor, at::Tensor> dry_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                         const ScoreScale& scale, const AttentionDropout& dropout,
                                                         const AttentionPattern& pattern);
at::Tensor dry_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const at::Tensor& out, const at::Tensor& log_sum_exp,
                                  const ScoreScale& scale, const AttentionDropout& dropout,
                                  const AttentionPattern& pattern);

}  // namespace shardline
