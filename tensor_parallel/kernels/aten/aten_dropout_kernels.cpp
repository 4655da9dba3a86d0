// Dropout, and attention with dropout, with the whole mask as one tensor.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
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

// The factors for x: 0 if an element is dropped, 1 / (1 - probability) if it is kept, 1 in padding rows; in x's wide
// type.
at::Tensor row_factors(const at::Tensor& x, const DropoutRows& rows) {
  if (rows.probability == 0 || rows.tokens == 0) return {};
  const at::TensorOptions numbers = x.options().dtype(at::kLong);
  const at::Tensor token = at::arange(rows.first_token, rows.first_token + x.size(0), numbers);
  const at::Tensor known = token.clamp_max(rows.tokens - 1);
  const auto key = [&](const at::Tensor& keys) { return keys.index_select(0, known).unsqueeze(1); };
  const at::Tensor keep =
      random_keep({rows.seed, rows.op, rows.step}, key(rows.samples),
                  key(rows.places) * x.size(1) + at::arange(x.size(1), numbers), 1 - rows.probability);
  return keep.to(wide_type(x)).mul_(kept_scale(rows.probability)).masked_fill_(token.unsqueeze(1) >= rows.tokens, 1);
}

// As above, for attention: in the scores' shape [batch, heads, length, length].
at::Tensor probability_factors(const at::Tensor& scores, const AttentionDropout& dropout) {
  if (dropout.probability == 0) return {};
  const int64_t heads = scores.size(1), length = scores.size(2);
  const at::TensorOptions numbers = scores.options().dtype(at::kLong);
  const at::Tensor place = at::arange(length, numbers), head = at::arange(heads, numbers) + dropout.first_head;
  const at::Tensor query = head.view({heads, 1, 1}) * dropout.max_positions + place.unsqueeze(1);
  const at::Tensor element = query * dropout.max_positions + place;  // [heads, length, length]
  const at::Tensor factors = at::empty(scores.sizes(), scores.options());
  // The integers of one sample are freed before the next sample, so a dry run needs only one.
  const int64_t samples = scores.is_meta() ? std::min<int64_t>(1, scores.size(0)) : scores.size(0);
  for (int64_t b = 0; b < samples; ++b) {
    at::Tensor word = element;
    if (dropout.first_places.defined())
      word = element + dropout.first_places.select(0, b) * (dropout.max_positions + 1);
    factors.select(0, b).copy_(random_keep({dropout.seed, dropout.op, dropout.step}, dropout.samples.select(0, b), word,
                                           1 - dropout.probability));
  }
  return factors.mul(kept_scale(dropout.probability));
}

// Whether a query [length, 1] must not see a key [length]; undefined: it may see all keys.
at::Tensor unseen(int64_t length, const AttentionPattern& pattern, const at::TensorOptions& like) {
  if (!pattern.causal) return {};
  const at::Tensor all = at::ones({length, length}, like.dtype(at::kBool));
  return pattern.window > 0 ? all.triu(1).bitwise_or_(all.tril(-pattern.window)) : all.triu(1);
}

// Scores and everything derived from them are computed in the wide type.
at::Tensor seen_scores(const at::Tensor& q, const at::Tensor& k, const ScoreScale& scale,
                       const AttentionPattern& pattern) {
  const at::Tensor hidden = unseen(q.size(2), pattern, q.options());
  const at::Tensor scores = at::matmul(q / scale.divisor, k.transpose(2, 3)) * (scale.scale * scale.divisor);
  return hidden.defined() ? scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity()) : scores;
}

// Runs one segment after another, each as a batch of one: run(segment, its part of a tensor with places in dimension 2,
// its dropout).
template <class Run>
void for_segments(const AttentionPattern& pattern, const AttentionDropout& dropout, const Run& run) {
  int64_t begin = 0;
  for (int64_t i = 0; i < std::ssize(pattern.ends); begin = pattern.ends[i++]) {
    const int64_t length = pattern.ends[i] - begin;
    if (length == 0) continue;
    AttentionDropout here = dropout;
    for (at::Tensor* keys : {&here.samples, &here.first_places})
      if (keys->defined()) *keys = keys->narrow(0, i, 1);
    run([=](const at::Tensor& t) { return t.narrow(2, begin, length); }, here);
  }
}
AttentionPattern without_segments(AttentionPattern pattern) {
  pattern.ends.clear();
  return pattern;
}

// Torch has no logsumexp for meta tensors, with which dry runs of accelerators call attention.
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
                                                     const ScoreScale& scale, const AttentionDropout& dropout,
                                                     const AttentionPattern& pattern) {
  const at::TensorOptions sums = q.options().dtype(wide_type(q));
  if (q.numel() == 0) return {at::empty(q.sizes(), q.options()), at::empty(q.sizes().slice(0, 3), sums)};
  if (!pattern.ends.empty()) {
    const at::Tensor out = at::empty(q.sizes(), q.options()), all_sums = at::empty(q.sizes().slice(0, 3), sums);
    for_segments(pattern, dropout, [&](const auto& part, const AttentionDropout& here) {
      const auto [mixed, log_sum_exp] =
          aten::attention_forward(part(q), part(k), part(v), scale, here, without_segments(pattern));
      part(out).copy_(mixed);
      part(all_sums).copy_(log_sum_exp);
    });
    return {out, all_sums};
  }
  const at::Tensor scores = seen_scores(wide(q), wide(k), scale, pattern);
  const at::Tensor log_sum_exp = log_of_sums(scores);
  const at::Tensor probabilities = (scores - log_sum_exp.unsqueeze(3)).exp_();
  return {at::matmul(times(probabilities, probability_factors(scores, dropout)), wide(v)).to(q.scalar_type()),
          log_sum_exp};
}

at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout, const AttentionPattern& pattern) {
  if (!pattern.ends.empty()) {
    std::vector<at::Tensor> parts;
    for_segments(pattern, dropout, [&](const auto& part, const AttentionDropout& here) {
      parts.push_back(aten::attention_backward(part(d_out), part(q), part(k), part(v), part(out), part(log_sum_exp),
                                               scale, here, without_segments(pattern)));
    });
    return at::cat(parts, 1);
  }
  const at::Tensor scores = seen_scores(wide(q), wide(k), scale, pattern);
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
