// Dropout and the attention that has it, with the whole mask as one tensor.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <limits>

#include "core/numbers/philox.h"
#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline::aten {
namespace {

double kept_scale(double probability) {
  return probability < 1 ? 1 / (1 - probability) : 0;
}

// What x is multiplied with: 0 where dropped, 1 / (1 - probability) where kept, 1 in padding rows; of x's wide type.
at::Tensor row_factors(const at::Tensor& x, const DropoutRows& rows) {
  const int64_t features = x.size(1);
  at::Tensor keep = at::ones(x.sizes(), at::kByte);
  at::Tensor factor = at::ones({x.size(0), 1}, at::kDouble);
  for (int64_t i = 0; rows.probability > 0 && i < x.size(0); ++i) {
    if (rows.sample[i] < 0) continue;
    random_keep({rows.seed, rows.op, rows.step, static_cast<uint32_t>(rows.sample[i])}, rows.position[i] * features,
                features, 1 - rows.probability, keep.mutable_data_ptr<uint8_t>() + i * features);
    factor.mutable_data_ptr<double>()[i] = kept_scale(rows.probability);
  }
  return (keep.to(at::kDouble) * factor).to(x.options().dtype(wide_type(x)));
}

// The same for attention: like scores, [batch, heads, length, length].
at::Tensor probability_factors(const at::Tensor& scores, const AttentionDropout& dropout) {
  const int64_t batch = scores.size(0), heads = scores.size(1), length = scores.size(2);
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
        random_keep(stream, first, length, 1 - dropout.probability, row);
      }
  }
  return (keep.to(at::kDouble) * factor).to(scores.options());
}

// Scores, and all that follows, in the wide type.
at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, const ScoreScale& scale) {
  const int64_t length = q.size(2);
  const at::Tensor future = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
  return (at::matmul(q / scale.divisor, k.transpose(2, 3)) * (scale.scale * scale.divisor))
      .masked_fill_(future, -std::numeric_limits<double>::infinity());
}

at::Tensor wide(const at::Tensor& t) {
  return t.to(wide_type(t));
}

}  // namespace

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows) {
  const at::Tensor y = (bias.defined() ? x + bias : x) * row_factors(x, rows);
  return residual.defined() ? (residual + y).to(residual.scalar_type()) : y.to(x.scalar_type());
}

at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows, at::ScalarType branch) {
  const at::Tensor dx = dy * row_factors(dy, rows);
  add_column_sums(bias_grad, dx.narrow(0, 0, valid_rows));
  return dx.to(branch);
}

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout) {
  const at::TensorOptions sums = q.options().dtype(wide_type(q));
  if (q.numel() == 0) return {at::empty(q.sizes(), q.options()), at::empty(q.sizes().slice(0, 3), sums)};
  const at::Tensor scores = causal_scores(wide(q), wide(k), scale);
  const at::Tensor log_sum_exp = scores.logsumexp({3});
  const at::Tensor probabilities = (scores - log_sum_exp.unsqueeze(3)).exp_();
  return {at::matmul(probabilities * probability_factors(scores, dropout), wide(v)).to(q.scalar_type()), log_sum_exp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const at::Tensor& d_out, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& out, const at::Tensor& log_sum_exp,
                                                                  const ScoreScale& scale,
                                                                  const AttentionDropout& dropout) {
  const at::Tensor scores = causal_scores(wide(q), wide(k), scale);
  const at::Tensor factors = probability_factors(scores, dropout);
  const at::Tensor probabilities = (scores - log_sum_exp.unsqueeze(3)).exp_();
  const at::Tensor dv = at::matmul((probabilities * factors).transpose(2, 3), wide(d_out));
  const at::Tensor d_probabilities = at::matmul(wide(d_out), wide(v).transpose(2, 3)) * factors;
  const at::Tensor row_sum = (wide(d_out) * wide(out)).sum(3, true);  // of probabilities * d_probabilities
  const at::Tensor d_scores = probabilities * (d_probabilities - row_sum) * scale.scale;
  const at::ScalarType type = q.scalar_type();
  return {at::matmul(d_scores, wide(k)).to(type), at::matmul(d_scores.transpose(2, 3), wide(q)).to(type), dv.to(type)};
}

}  // namespace shardline::aten
