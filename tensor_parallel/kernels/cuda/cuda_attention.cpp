#include "tensor_parallel/kernels/cuda/cuda_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/cuda/tensor_arguments.h"

namespace shardline::cuda {
namespace {

constexpr int64_t kMostHeads = 65535;  // of all samples: the blocks of a launch in one direction

bool computes_attention(const at::Tensor& q) {
  return has_kernels(q) && q.size(3) <= kWidestHead && q.size(0) * q.size(1) <= kMostHeads;
}

// A copy, where one is made, may be dropped once the launch is queued: its memory goes back to the same stream.
at::Tensor with_dense_rows(const at::Tensor& t) {
  return t.stride(3) == 1 ? t : t.contiguous();
}

HeadRows rows_of(const at::Tensor& t, void* data) {
  SL_ASSERT(t.stride(3) == 1, "the features of a head are side by side; strides ", t.strides());
  return {data, t.stride(0), t.stride(1), t.stride(2)};
}
HeadRows rows_read(const at::Tensor& t) {
  return rows_of(t, const_cast<void*>(t.const_data_ptr()));  // NOLINT: kernels only read these
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
                                                     const ScoreScale& scale, const AttentionDropout& dropout) {
  if (!computes_attention(q)) return aten::attention_forward(q, k, v, scale, dropout);
  const at::Tensor out = at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2);
  const at::Tensor log_sum_exp = at::empty(q.sizes().slice(0, 3), q.options().dtype(at::kFloat));
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
                              const AttentionDropout& dropout) {
  if (!computes_attention(q)) return aten::attention_backward(d_out, q, k, v, out, log_sum_exp, scale, dropout);
  const at::Tensor d_qkv = at::empty({q.size(0), q.size(2), 3, q.size(1), q.size(3)}, q.options());
  const auto [dq, dk, dv] = parts_of_qkv(d_qkv);
  const at::Tensor along = at::empty_like(log_sum_exp);
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
