// How accelerators compute the attention core of kernels.h, and the tensors that they allocate for it. Shared by the
// functions that launch their kernels (cuda/cuda_attention.cpp) and by dry runs (cpu/dry_attention.h).
#pragma once
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

// Torch's flash attention for half precision without dropout, if it supports the head size; otherwise our kernels, if
// they do; otherwise ATen, which keeps all scores in memory. Only ATen supports segments and windows, and only ATen and
// flash attention let queries see later keys.
enum class AttentionWay { flash, kernels, aten };
AttentionWay attention_way(const at::Tensor& q, const AttentionDropout& dropout, const AttentionPattern& pattern);

// Uninitialised results of attention_forward, laid out as flash attention does.
std::tuple<at::Tensor, at::Tensor> empty_attention_results(const at::Tensor& q);

// Uninitialised result of attention_backward, and room for our kernels' sums over features, [batch, heads, length].
struct AttentionGradients {
  at::Tensor d_qkv, along;
};
AttentionGradients empty_attention_gradients(const at::Tensor& q);

}  // namespace shardline
