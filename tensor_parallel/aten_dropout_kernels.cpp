// Dropout and the attention that has it, with the whole mask as one tensor.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <limits>

#include "core/philox.h"
#include "tensor_parallel/aten_kernels.h"

namespace shardline::aten {
namespace {

double kept_scale(double probability) {
  return probability < 1 ? 1 / (1 - probability) : 0;
}

// What x is multiplied with: 0 where dropped, 1 / (1 - probability) where kept, 1 in padding rows. Like x.
at::Tensor row_factors(const at::Tensor& x, const DropoutRows& rows) {
  const int64_t features = x.size(1);
  at::Tensor keep = at::ones(x.sizes(), at::kByte);
  at::Tensor factor = at::ones({x.size(0), 1}, at::kDouble);
  for (int64_t i = 0; rows.probability > 0 && i < x.size(0); ++i) {
    if (rows.sample[i] < 0) continue;
    random_keep({rows.seed, rows.op, rows.step, static_cast<uint32_t>(rows.sample[i])},
                static_cast<uint64_t>(rows.position[i]) * features, features, 1 - rows.probability,
                keep.mutable_data_ptr<uint8_t>() + i * features);
    factor.mutable_data_ptr<double>()[i] = kept_scale(rows.probability);
  }
  return (keep.to(at::kDouble) * factor).to(x.options());
}

// The same for attention: [batch, heads, length, length].
at::Tensor probability_factors(const at::Tensor& q, const AttentionDropout& dropout) {
  const int64_t batch = q.size(0), heads = q.size(1), length = q.size(2);
  at::Tensor keep = at::ones({batch, heads, length, length}, at::kByte);
  at::Tensor factor = at::ones({batch, 1, 1, 1}, at::kDouble);
  uint8_t* row = keep.mutable_data_ptr<uint8_t>();
  for (int64_t b = 0; dropout.probability > 0 && b < batch; ++b) {
    if (dropout.sample[b] < 0) {
      row += heads * length * length;
      continue;
    }
    factor.mutable_data_ptr<double>()[b] = kept_scale(dropout.probability);
    const RandomStream stream{dropout.seed, dropout.op, dropout.step, static_cast<uint32_t>(dropout.sample[b])};
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t query = 0; query < length; ++query, row += length) {
        const int64_t first = ((dropout.first_head + h) * dropout.max_positions + query) * dropout.max_positions;
        random_keep(stream, static_cast<uint64_t>(first), length, 1 - dropout.probability, row);
      }
  }
  return (keep.to(at::kDouble) * factor).to(q.options());
}

at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, double scale) {
  const int64_t length = q.size(2);
  const at::Tensor future = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
  return at::matmul(q * scale, k.transpose(2, 3)).masked_fill_(future, -std::numeric_limits<double>::infinity());
}

}  // namespace

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows) {
  const at::Tensor y = (bias.defined() ? x + bias : x) * row_factors(x, rows);
  return residual.defined() ? residual + y : y;
}

at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows) {
  const at::Tensor dx = dy * row_factors(dy, rows);
  add_column_sums(bias_grad, dx.narrow(0, 0, valid_rows));
  return dx;
}

std::tuple<at::Tensor, at::Tensor> dropout_attention_forward(const at::Tensor& q, const at::Tensor& k,
                                                             const at::Tensor& v, double scale,
                                                             const AttentionDropout& dropout) {
  const at::Tensor scores = causal_scores(q, k, scale);
  if (scores.numel() == 0) return {at::empty(q.sizes(), q.options()), at::empty(q.sizes().slice(0, 3), q.options())};
  const at::Tensor log_sum_exp = scores.logsumexp({3});
  const at::Tensor probabilities = (scores - log_sum_exp.unsqueeze(3)).exp_();
  return {at::matmul(probabilities * probability_factors(q, dropout), v), log_sum_exp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> dropout_attention_backward(const at::Tensor& d_out, const at::Tensor& q,
                                                                          const at::Tensor& k, const at::Tensor& v,
                                                                          const at::Tensor& out,
                                                                          const at::Tensor& log_sum_exp, double scale,
                                                                          const AttentionDropout& dropout) {
  const at::Tensor factors = probability_factors(q, dropout);
  const at::Tensor probabilities = (causal_scores(q, k, scale) - log_sum_exp.unsqueeze(3)).exp_();
  const at::Tensor dv = at::matmul((probabilities * factors).transpose(2, 3), d_out);
  const at::Tensor d_probabilities = at::matmul(d_out, v.transpose(2, 3)) * factors;
  const at::Tensor row_sum = (d_out * out).sum(3, true);  // of probabilities * d_probabilities
  const at::Tensor d_scores = probabilities * (d_probabilities - row_sum) * scale;
  return {at::matmul(d_scores, k), at::matmul(d_scores.transpose(2, 3), q), dv};
}

}  // namespace shardline::aten
