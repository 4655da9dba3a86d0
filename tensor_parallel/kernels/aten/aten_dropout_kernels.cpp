// Dropout and the attention that has it, with the whole mask as one tensor.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <limits>

#include "tensor_parallel/kernels/aten/aten_kernels.h"
#include "tensor_parallel/kernels/aten/aten_random.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline::aten {
namespace {

double kept_scale(double probability) {
  return probability < 1 ? 1 / (1 - probability) : 0;
}

at::Tensor wide(const at::Tensor& t) {
  return t.to(wide_type(t));
}

// t times the factors; if they are undefined, all of them are 1.
at::Tensor times(const at::Tensor& t, const at::Tensor& factors) {
  return factors.defined() ? t * factors : t;
}

// The factors of x: 0 where an element is dropped, 1 / (1 - probability) where it is kept, 1 in padding rows; in x's
// wide type.
at::Tensor row_factors(const at::Tensor& x, const DropoutRows& rows) {
  if (rows.probability == 0 || rows.tokens == 0) return {};
  const at::TensorOptions numbers = x.options().dtype(at::kLong);
  const at::Tensor token = at::arange(rows.first_token, rows.first_token + x.size(0), numbers).unsqueeze(1);
  const at::Tensor sequence = token.floor_divide(rows.length).clamp_max_(rows.samples.numel() - 1);
  const at::Tensor position = token.remainder(rows.length).add_(rows.first_position);
  const at::Tensor keep =
      random_keep({rows.seed, rows.op, rows.step}, rows.samples.index_select(0, sequence.squeeze(1)).unsqueeze(1),
                  position * x.size(1) + at::arange(x.size(1), numbers), 1 - rows.probability);
  return keep.to(wide_type(x)).mul_(kept_scale(rows.probability)).masked_fill_(token >= rows.tokens, 1);
}

// The same for attention, of the scores' shape [batch, heads, length, length].
at::Tensor probability_factors(const at::Tensor& scores, const AttentionDropout& dropout) {
  if (dropout.probability == 0) return {};
  const int64_t heads = scores.size(1), length = scores.size(2);
  const at::TensorOptions numbers = scores.options().dtype(at::kLong);
  const at::Tensor place = at::arange(length, numbers), head = at::arange(heads, numbers) + dropout.first_head;
  const at::Tensor query = head.view({heads, 1, 1}) * dropout.max_positions + place.unsqueeze(1);
  const at::Tensor element = query * dropout.max_positions + place;  // [heads, length, length]
  const at::Tensor factors = at::empty(scores.sizes(), scores.options());
  // The integers of one sample are freed before the next one's, so a dry run needs only one.
  const int64_t samples = scores.is_meta() ? std::min<int64_t>(1, scores.size(0)) : scores.size(0);
  for (int64_t b = 0; b < samples; ++b)
    factors.select(0, b).copy_(random_keep({dropout.seed, dropout.op, dropout.step}, dropout.samples.select(0, b),
                                           element, 1 - dropout.probability));
  return factors.mul(kept_scale(dropout.probability));
}

// Scores are computed in the wide type, like everything that follows from them.
at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, const ScoreScale& scale) {
  const int64_t length = q.size(2);
  const at::Tensor future = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
  return (at::matmul(q / scale.divisor, k.transpose(2, 3)) * (scale.scale * scale.divisor))
      .masked_fill_(future, -std::numeric_limits<double>::infinity());
}

// Torch has no logsumexp of meta tensors, on which dry runs of accelerators call attention.
at::Tensor log_of_sums(const at::Tensor& scores) {
  return scores.is_meta() ? at::empty(scores.sizes().slice(0, 3), scores.options()) : scores.logsumexp({3});
}

}  // namespace

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows) {
  const at::Tensor y = times(bias.defined() ? wide(x) + bias : wide(x), row_factors(x, rows));
  return residual.defined() ? (residual + y).to(residual.scalar_type()) : y.to(x.scalar_type());
}

at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows, at::ScalarType branch) {
  const at::Tensor dx = times(dy, row_factors(dy, rows));
  add_column_sums(bias_grad, dx.narrow(0, 0, valid_rows));
  return dx.to(branch);
}

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout) {
  const at::TensorOptions sums = q.options().dtype(wide_type(q));
  if (q.numel() == 0) return {at::empty(q.sizes(), q.options()), at::empty(q.sizes().slice(0, 3), sums)};
  const at::Tensor scores = causal_scores(wide(q), wide(k), scale);
  const at::Tensor log_sum_exp = log_of_sums(scores);
  const at::Tensor probabilities = (scores - log_sum_exp.unsqueeze(3)).exp_();
  return {at::matmul(times(probabilities, probability_factors(scores, dropout)), wide(v)).to(q.scalar_type()),
          log_sum_exp};
}

at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout) {
  const at::Tensor scores = causal_scores(wide(q), wide(k), scale);
  const at::Tensor factors = probability_factors(scores, dropout);
  const at::Tensor probabilities = (scores - log_sum_exp.unsqueeze(3)).exp_();
  const at::Tensor dv = at::matmul(times(probabilities, factors).transpose(2, 3), wide(d_out));
  const at::Tensor d_probabilities = times(at::matmul(wide(d_out), wide(v).transpose(2, 3)), factors);
  const at::Tensor row_sum = (wide(d_out) * wide(out)).sum(3, true);  // the row sums of probabilities * d_probabilities
  const at::Tensor d_scores = probabilities * (d_probabilities - row_sum) * scale.scale;
  const at::ScalarType type = q.scalar_type();
  return side_by_side(at::matmul(d_scores, wide(k)).to(type), at::matmul(d_scores.transpose(2, 3), wide(q)).to(type),
                      dv.to(type));
}

}  // namespace shardline::aten
