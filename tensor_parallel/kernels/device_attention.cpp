#include "tensor_parallel/kernels/device_attention.h"

#include <ATen/ops/empty.h>

#include "core/device/accelerator.h"
#include "tensor_parallel/kernels/attention_limits.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

// Whether torch's flash attention supports q, forward and backward, on all its GPUs: with compute capability 8.6 and
// 8.9, it has no backward pass for heads of more than 192 and up to 224 features.
bool is_for_flash(const at::Tensor& q, const AttentionDropout& dropout) {
  const int64_t head_dim = q.size(3);
  const bool has_size = head_dim % 8 == 0 && head_dim <= 256 && (head_dim <= 192 || head_dim > 224);
  const bool is_half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return dropout.probability == 0 && is_accelerator(q) && is_half && has_size && q.numel() > 0;
}

at::Tensor empty_row_sums(const at::Tensor& q) {
  return at::empty(q.sizes().slice(0, 3), q.options().dtype(wide_type(q)));
}

}  // namespace

AttentionWay attention_way(const at::Tensor& q, const AttentionDropout& dropout, const AttentionPattern& pattern) {
  if (!pattern.ends.empty() || pattern.window > 0) return AttentionWay::aten;
  if (is_for_flash(q, dropout)) return AttentionWay::flash;
  const bool fits = pattern.causal && q.size(3) <= kWidestHead && q.size(0) * q.size(1) <= kMostHeads;
  return fits && q.scalar_type() != at::kDouble ? AttentionWay::kernels : AttentionWay::aten;
}

std::tuple<at::Tensor, at::Tensor> empty_attention_results(const at::Tensor& q) {
  return {at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2), empty_row_sums(q)};
}

AttentionGradients empty_attention_gradients(const at::Tensor& q) {
  return {at::empty({q.size(0), q.size(2), 3, q.size(1), q.size(3)}, q.options()), empty_row_sums(q)};
}

}  // namespace shardline
