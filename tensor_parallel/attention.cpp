#include "tensor_parallel/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/error.h"
#include "tensor_parallel/backward.h"
#include "tensor_parallel/kernels.h"

namespace shardline {
namespace {

// [tokens, 3 * heads * head_dim] -> q, k, v, each [batch, heads, length, head_dim], strided.
std::array<at::Tensor, 3> split_qkv(const at::Tensor& qkv, const Microbatch& batch, const AttentionOptions& o) {
  const auto five = qkv.view({batch.batch(), batch.length(), 3, o.heads, o.head_dim}).permute({2, 0, 3, 1, 4});
  return {five[0], five[1], five[2]};
}

// [batch, heads, length, head_dim] -> [tokens, heads * head_dim]
at::Tensor merge_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1) * x.size(3)});
}
at::Tensor split_heads(const at::Tensor& x, const Microbatch& batch, const AttentionOptions& o) {
  return x.view({batch.batch(), batch.length(), o.heads, o.head_dim}).transpose(1, 2);
}

at::Tensor cached_attention(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& o) {
  const auto [q, k, v] = split_qkv(qkv, *context.batch, o);
  const auto [keys, values] = context.cache->append(k, v);
  const int64_t queries = q.size(2), seen = keys.size(2);
  std::optional<at::Tensor> mask;  // query i stands at position seen - queries + i
  if (queries > 1 && seen > queries)
    mask = at::ones({queries, seen}, q.options().dtype(at::kBool)).tril(seen - queries);
  return merge_heads(at::scaled_dot_product_attention(q, keys, values, mask, 0.0, queries > 1 && !mask, o.scale));
}

AttentionDropout dropout_of(const MicrobatchContext& context, const AttentionOptions& o) {
  return {.seed = context.seed,
          .op = o.dropout_op,
          .step = static_cast<uint32_t>(context.step),
          .probability = o.dropout,
          .sample = context.batch->samples,
          .first_head = o.first_head,
          .max_positions = o.max_positions};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KvCache::append(const at::Tensor& k, const at::Tensor& v) {
  const int64_t needed = length_ + k.size(2);
  if (!keys_.defined() || keys_.size(2) < needed) {
    auto sizes = k.sizes().vec();
    sizes[2] = std::max<int64_t>(needed, keys_.defined() ? 2 * keys_.size(2) : 64);
    auto keys = at::empty(sizes, k.options()), values = at::empty(sizes, v.options());
    if (length_ > 0) {
      keys.narrow(2, 0, length_).copy_(keys_.narrow(2, 0, length_));
      values.narrow(2, 0, length_).copy_(values_.narrow(2, 0, length_));
    }
    keys_ = keys;
    values_ = values;
  }
  keys_.narrow(2, length_, k.size(2)).copy_(k);
  values_.narrow(2, length_, v.size(2)).copy_(v);
  length_ = needed;
  return {keys_.narrow(2, 0, length_), values_.narrow(2, 0, length_)};
}

at::Tensor causal_attention(const at::Tensor& qkv, const MicrobatchContext& context, const AttentionOptions& o) {
  const Microbatch& batch = *context.batch;
  if (qkv.numel() == 0)  // an empty microbatch, or a rank without heads
    return with_backward(at::zeros({qkv.size(0), o.heads * o.head_dim}, qkv.options().requires_grad(false)), {qkv},
                         "CausalAttention", [sizes = qkv.sizes().vec(), options = qkv.options()](const at::Tensor&) {
                           return std::vector<at::Tensor>{at::zeros(sizes, options.requires_grad(false))};
                         });
  if (context.cache) return cached_attention(qkv, context, o);
  const bool drops = context.mode == Mode::train && o.dropout > 0;
  if (!qkv.is_cpu() && !drops) {
    const auto [q, k, v] = split_qkv(qkv, batch, o);
    return merge_heads(at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, o.scale));
  }
  at::Tensor out, log_sum_exp;
  {
    at::NoGradGuard no_grad;
    const auto [q, k, v] = split_qkv(qkv, batch, o);
    std::tie(out, log_sum_exp) = drops
                                     ? dropout_attention_forward(q, k, v, o.scale, dropout_of(context, o))
                                     : at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true, {}, o.scale);
  }
  const auto dropout = drops ? dropout_of(context, o) : AttentionDropout{};
  return with_backward(
      merge_heads(out), {qkv}, "CausalAttention", [=, qkv = qkv.detach(), &batch](const at::Tensor& d_merged) {
        const auto [q, k, v] = split_qkv(qkv, batch, o);
        const auto d_out = split_heads(d_merged.contiguous(), batch, o);
        auto [dq, dk, dv] = drops ? dropout_attention_backward(d_out, q, k, v, out, log_sum_exp, o.scale, dropout)
                                  : at::_scaled_dot_product_flash_attention_for_cpu_backward(
                                        d_out, q, k, v, out, log_sum_exp, 0.0, true, {}, o.scale);
        auto d_qkv = at::empty(qkv.sizes(), qkv.options());
        const auto parts = split_qkv(d_qkv, batch, o);
        parts[0].copy_(dq);
        parts[1].copy_(dk);
        parts[2].copy_(dv);
        return std::vector<at::Tensor>{d_qkv};
      });
}

}  // namespace shardline
