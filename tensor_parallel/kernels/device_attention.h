// How accelerators compute the attention core of kernels.h, and the tensors that they allocate for it. The functions
// that launch their kernels (cuda/cuda_attention.cpp) and dry runs (cpu/dry_attention.h) share it.
#pragma once
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

// Torch's flash attention in half precision without dropout, if it supports the size of a head; otherwise our kernels,
// if they do; otherwise ATen, which has all scores in memory. Only ATen has segments and windows, and only ATen and
// flash attention let queries see later keys.
enum class AttentionWay { flash, kernels, aten };
AttentionWay attention_way(const at::Tensor& q, const AttentionDropout& dropout, const AttentionPattern& pattern);

// The results of attention_forward, not filled; those of flash attention are laid out in the same way.
std::tuple<at::Tensor, at::Tensor> empty_attention_results(const at::Tensor& q);

// The result of attention_backward, not filled, and room for our kernels' sums over features, [batch, heads, length].
struct AttentionGradients {
  at::Tensor d_qkv, along;
};
AttentionGradients empty_attention_gradients(const at::Tensor& q);

}  // namespace shardline
