#include "tensor_parallel/kernels/cuda/cuda_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/cuda/tensor_arguments.h"
#include "tensor_parallel/kernels/device_attention.h"

namespace shardline::cuda {
namespace {

// Flash attention (Dao 2023, arXiv 2307.08691). It reads strided q, k and v without copying, and its results are laid
// out like [batch, length, heads, head_dim].
std::tuple<at::Tensor, at::Tensor> flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                 double scale, bool causal) {
  const auto results = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal,
                                                               /*return_debug_mask=*/false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

// Torch allocates the three gradients itself; one launch copies them to the tensor that the previous layer uses.
at::Tensor flash_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& out, const at::Tensor& log_sum_exp, double scale, bool causal) {
  const at::Tensor equal_lengths;
  const at::Tensor no_random_state = at::empty({2}, q.options().dtype(at::kUInt64));
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
      d_out, q, k, v, out, log_sum_exp, equal_lengths, equal_lengths, q.size(2), k.size(2), 0.0, causal,
      no_random_state, no_random_state, scale);
  return at::stack({dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)}, 2);
}

// The caller may drop the copy, if one is made, as soon as the launch is queued, because only later work on the same
// stream can reuse its memory.
at::Tensor with_dense_rows(const at::Tensor& t) {
  return t.stride(3) == 1 ? t : t.contiguous();
}

HeadRows rows_of(const at::Tensor& t, void* data) {
  SL_ASSERT(t.stride(3) == 1, "the features of a head must be contiguous; strides ", t.strides());
  return {data, t.stride(0), t.stride(1), t.stride(2)};
}
HeadRows rows_read(const at::Tensor& t) {
  return rows_of(t, const_cast<void*>(t.const_data_ptr()));  // NOLINT: kernels only read this
}
HeadRows rows_written(const at::Tensor& t) {
  return rows_of(t, t.mutable_data_ptr());
}

AttentionCase case_of(const at::Tensor& q, const ScoreScale& scale, const AttentionDropout& dropout) {
  return {.batch = q.size(0),
          .heads = q.size(1),
          .length = q.size(2),
          .head_dim = q.size(3),
          .scale = static_cast<float>(scale.scale),
          .seed = dropout.seed,
          .op = dropout.op,
          .step = dropout.step,
          .probability = dropout.probability,
          .samples = read_as<int64_t>(dropout.samples),
          .first_head = dropout.first_head,
          .max_positions = dropout.max_positions};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout,
                                                     const AttentionPattern& pattern) {
  const AttentionWay way = attention_way(q, dropout, pattern);
  if (way == AttentionWay::flash) return flash_forward(q, k, v, scale.scale, pattern.causal);
  if (way == AttentionWay::aten) return aten::attention_forward(q, k, v, scale, dropout, pattern);
  const auto [out, log_sum_exp] = empty_attention_results(q);
  if (q.numel() > 0)
    attention_forward(case_of(q, scale, dropout),
                      {.q = rows_read(with_dense_rows(q)),
                       .k = rows_read(with_dense_rows(k)),
                       .v = rows_read(with_dense_rows(v)),
                       .out = rows_written(out),
                       .log_sum_exp = written_as<float>(log_sum_exp)},
                      number_of(q), current_stream(q));
  return {out, log_sum_exp};
}

at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout, const AttentionPattern& pattern) {
  const AttentionWay way = attention_way(q, dropout, pattern);
  if (way == AttentionWay::flash) return flash_backward(d_out, q, k, v, out, log_sum_exp, scale.scale, pattern.causal);
  if (way == AttentionWay::aten)
    return aten::attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout, pattern);
  const auto [d_qkv, along] = empty_attention_gradients(q);
  const auto [dq, dk, dv] = parts_of_qkv(d_qkv);
  if (q.numel() > 0)
    attention_backward(case_of(q, scale, dropout),
                       {.q = rows_read(with_dense_rows(q)),
                        .k = rows_read(with_dense_rows(k)),
                        .v = rows_read(with_dense_rows(v)),
                        .out = rows_read(with_dense_rows(out)),
                        .d_out = rows_read(with_dense_rows(d_out)),
                        .dq = rows_written(dq),
                        .dk = rows_written(dk),
                        .dv = rows_written(dv),
                        .log_sum_exp = read_as<float>(log_sum_exp),
                        .along = written_as<float>(along)},
                       number_of(q), current_stream(q));
  return d_qkv;
}

}  // namespace shardline::cuda
