#include "models/families/causal_work.h"

namespace shardline {
namespace {

using Kind = Collective::Kind;

// Elements that sweeps touch; a mask is one byte each.
class Sweeps {
 public:
  Sweeps(LayerWork& work, const WorkShape& shape) : work_(work), value_(shape.value_bytes) {}

  // Reads and writes `values` activations and `masks` mask bytes per element, in `kernels` kernels.
  void add(Phase phase, double elements, double values, double masks, int kernels, bool core = false) {
    work_.sweeps.push_back({phase, elements * (values * value_ + masks), kernels, core});
  }

 private:
  LayerWork& work_;
  double value_;
};

// Whole attention on split rows: every rank needs q, k and v of all tokens, and the gradient of their mix.
void add_core_collectives(LayerWork& work, const WorkShape& shape, double bytes) {
  if (shape.tensor == 1 || !shape.sequence_parallel) return;
  work.collectives.push_back({Kind::all_gather, Phase::forward, 3 * bytes});
  work.collectives.push_back({Kind::all_gather, Phase::backward_input, bytes});
}

// The border between rows that are split over T and rows that are whole: without sequence parallelism nothing on the
// way in and an all-reduce on the way out, with it an all-gather in and a reduce-scatter out; backward the other way.
void add_tensor_collectives(LayerWork& work, const WorkShape& shape, double bytes) {
  if (shape.tensor == 1) return;
  if (!shape.sequence_parallel) {
    work.collectives.push_back({Kind::all_reduce, Phase::forward, bytes});
    work.collectives.push_back({Kind::all_reduce, Phase::backward_input, bytes});
    return;
  }
  for (const Phase phase : {Phase::forward, Phase::backward_input}) {
    work.collectives.push_back({Kind::all_gather, phase, bytes});
    work.collectives.push_back({Kind::reduce_scatter, phase, bytes});
  }
  work.collectives.push_back({Kind::all_gather, Phase::backward_weight, bytes});  // the input, kept split
}

void add_norm(Sweeps& sweeps, double elements) {
  sweeps.add(Phase::forward, elements, 2, 0, 1);
  sweeps.add(Phase::backward_input, elements, 3, 0, 1);  // input, gradient in, gradient out
  sweeps.add(Phase::backward_input, elements, 2, 0, 2);  // and once more for weight and bias
}

// out = residual + dropout(x + bias)
void add_bias_dropout(Sweeps& sweeps, double elements, bool bias) {
  sweeps.add(Phase::forward, elements, 3, 1, 1);
  sweeps.add(Phase::backward_input, elements, 2, 1, 1);
  if (bias) sweeps.add(Phase::backward_input, elements, 1, 0, 1);
  sweeps.add(Phase::backward_input, elements, 3, 0, 1);  // the sum of both branches' gradients
}

// Between the q, k and v of the linear and those of the attention core.
void add_head_order(Sweeps& sweeps, const CausalConfig& config, double values, double gradients) {
  sweeps.add(Phase::forward, values, 2, 0, 1);
  sweeps.add(Phase::backward_input, gradients, config.attention_bias ? 3 : 2, 0, config.attention_bias ? 2 : 1);
  if (config.rotary_dim == 0) return;
  const double turned = 2.0 / 3 * config.rotary_dim / config.head_dim();
  sweeps.add(Phase::forward, turned * values, 2, 0, 1);
  sweeps.add(Phase::backward_input, turned * values, 2, 0, 1);
}

// softmax(q k^T) v: score products, and what passes over the scores unless it is fused.
void add_attention_core(LayerWork& work, Sweeps& sweeps, const WorkShape& shape, int64_t heads, int64_t head_dim) {
  const int64_t s = shape.length;
  const double count = shape.sequences * heads;
  const double share = shape.fused ? 0.5 : 1;  // a fused op leaves the masked half out
  const auto product = [&](Phase phase, int64_t n, int64_t k) {
    work.products.push_back({phase, s, n, k, count * share, !shape.fused, true});
  };
  product(Phase::forward, s, head_dim);
  product(Phase::forward, head_dim, s);
  product(Phase::backward_input, s, head_dim);  // of the probabilities
  product(Phase::backward_input, head_dim, s);  // of v
  product(Phase::backward_input, head_dim, s);  // of q
  product(Phase::backward_input, head_dim, s);  // of k
  if (shape.fused) {
    product(Phase::backward_input, s, head_dim);  // the scores once more
    return;
  }
  const double scores = count * (s * s);
  sweeps.add(Phase::forward, scores, 2, 0, 1, true);         // scale, mask, softmax
  sweeps.add(Phase::forward, scores, 2, 1, 1, true);         // dropout
  sweeps.add(Phase::backward_input, scores, 2, 1, 1, true);  // dropout
  sweeps.add(Phase::backward_input, scores, 3, 0, 1, true);  // softmax
}

}  // namespace

LayerWork causal_embedding_work(const CausalConfig& config, bool split, const WorkShape& shape) {
  LayerWork work;
  Sweeps sweeps(work, shape);
  const double whole = (split ? shape.tokens() : shape.rows()) * config.n_embd;
  const double border = shape.rows() * config.n_embd;
  sweeps.add(Phase::forward, whole, 2, 0, 2);
  sweeps.add(Phase::forward, border, config.position_table ? 4 : 2, 1, config.position_table ? 2 : 1);  // and dropout
  sweeps.add(Phase::backward_input, border, 2, 1, 1);
  sweeps.add(Phase::backward_input, whole, 3, 0, config.position_table ? 2 : 1);  // adds rows to tables' gradients
  const double bytes = whole * shape.value_bytes;
  if (split && shape.tensor > 1 && shape.sequence_parallel) {
    work.collectives = {{Kind::reduce_scatter, Phase::forward, bytes},
                        {Kind::all_gather, Phase::backward_input, bytes}};
  } else if (split && shape.tensor > 1) {
    work.collectives = {{Kind::all_reduce, Phase::forward, bytes}};
  }
  return work;
}

LayerWork causal_block_work(const CausalConfig& config, BlockSplit split, const WorkShape& shape) {
  LayerWork work{.hidden = config.n_embd, .heads = config.n_head, .recomputable = true};
  Sweeps sweeps(work, shape);
  const int64_t h = config.n_embd, tokens = shape.tokens();
  const int64_t heads = split.attention ? shape.share(config.n_head) : config.n_head, width = heads * config.head_dim(),
                inner = split.mlp ? shape.share(config.inner()) : config.inner();
  const int64_t attention_rows = split.attention ? tokens : shape.rows(), mlp_rows = split.mlp ? tokens : shape.rows();
  const double border = shape.rows() * h, wide = mlp_rows * inner;
  const double border_bytes = tokens * h * shape.value_bytes;

  add_norm(sweeps, border);
  add_linear(work, attention_rows, 3 * width, h);
  add_head_order(sweeps, config, 3 * attention_rows * width, 3 * tokens * width);
  add_attention_core(work, sweeps, shape, heads, config.head_dim());
  add_linear(work, attention_rows, h, width);
  split.attention ? add_tensor_collectives(work, shape, border_bytes) : add_core_collectives(work, shape, border_bytes);
  add_bias_dropout(sweeps, border, config.attention_bias);

  if (config.parallel_branches)
    sweeps.add(Phase::backward_input, border, 3, 0, 1);  // the sum of both branches' gradients of the norm
  else
    add_norm(sweeps, border);
  add_linear(work, mlp_rows, inner, h);
  sweeps.add(Phase::forward, wide, 2, 0, 1);  // bias, activation
  sweeps.add(Phase::backward_input, wide, 3, 0, 1);
  sweeps.add(Phase::backward_input, wide, 1, 0, 1);  // bias
  add_linear(work, mlp_rows, h, inner);
  if (split.mlp) add_tensor_collectives(work, shape, border_bytes);
  add_bias_dropout(sweeps, border, true);
  return work;
}

LayerWork causal_head_work(const CausalConfig& config, bool split, const WorkShape& shape) {
  LayerWork work;
  Sweeps sweeps(work, shape);
  const int64_t h = config.n_embd, rows = split ? shape.tokens() : shape.rows();
  const int64_t words = split ? shape.share(config.vocab_size) : config.vocab_size;
  const double border = shape.rows() * h;
  const double logits = rows * words;
  add_norm(sweeps, border);
  for (const auto& [n, k] : {std::pair{words, h}, std::pair{h, words}})
    work.products.push_back({Phase::forward, rows, n, k});
  work.products.push_back({Phase::forward, words, h, rows});
  if (config.head_bias) sweeps.add(Phase::forward, logits, 1, 0, 1);
  // Logits and their gradient once each where blocks of them fit a cache; whole fp32 logits pass memory 12 times, as
  // conversion, maximum, difference, exponential, sum, quotient, and back.
  if (shape.fused) {
    work.sweeps.push_back({Phase::forward, logits * 2 * shape.value_bytes, 4});
  } else {
    work.sweeps.push_back({Phase::forward, logits * (12 * 4 + 2 * shape.value_bytes), 9});
  }
  if (split && shape.tensor > 1) {
    const double bytes = rows * h * shape.value_bytes;
    if (shape.sequence_parallel) {
      work.collectives = {{Kind::all_gather, Phase::forward, bytes}, {Kind::reduce_scatter, Phase::forward, bytes}};
    } else {
      work.collectives = {{Kind::all_reduce, Phase::forward, bytes}};
    }
  }
  return work;
}

}  // namespace shardline
