#include "models/families/causal_memory.h"

#include <algorithm>

#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/ops/cross_entropy.h"

namespace shardline {
namespace {

// The bytes of a layer's tensors on one rank.
struct Sizes {
  Sizes(const CausalConfig& c, const KeptCase& at)
      : element(at.element_bytes),
        wide(std::max<int64_t>(4, element)),
        whole(at.tokens * c.n_embd * element),
        border(at.rows * c.n_embd * element),
        residual(at.rows * c.n_embd * at.border_bytes),
        statistics(2 * at.rows * wide),
        sharded(at.rows < at.tokens),
        gathered(sharded ? border * at.t_degree : 0),
        padded(gathered > whole ? gathered : 0) {}

  int64_t element, wide;  // of a number, of a sum
  int64_t whole;          // [tokens, hidden]
  int64_t border;         // [rows, hidden]
  int64_t residual;       // the same between layers
  int64_t statistics;     // of a norm: mean, 1 / deviation
  bool sharded;           // rows are, over T
  int64_t gathered;       // a border of all ranks; 0 where it is whole already
  int64_t padded;         // what is given to a reduce-scatter, unless it is the product itself
};

// Those of a block. Linears that are whole on every rank run on border rows.
struct BlockSizes : Sizes {
  BlockSizes(const CausalConfig& c, BlockSplit split, const KeptCase& at)
      : Sizes(c, at),
        parallel(c.parallel_branches),
        own_attention(sharded && !split.attention),
        own_mlp(sharded && !split.mlp),
        mixed(at.tokens * heads_of(c, split, at) * c.head_dim() * element),
        sums(at.tokens * heads_of(c, split, at) * wide),
        attended(own_attention ? border : mixed),
        inner((own_mlp ? at.rows : at.tokens) *
              (split.mlp ? split_range(c.inner(), at.t_degree, at.t).length : c.inner()) * element) {}

  static int64_t heads_of(const CausalConfig& c, BlockSplit split, const KeptCase& at) {
    return split.attention ? split_range(c.n_head, at.t_degree, at.t).length : c.n_head;
  }

  bool parallel;                // one norm feeds both branches
  bool own_attention, own_mlp;  // linears on this rank's rows only
  int64_t mixed;                // of attention; of each of q, k and v
  int64_t sums;                 // logs of sums of exponentials
  int64_t attended;             // what the projection takes; each of q, k and v as they are made
  int64_t inner;
};

// Counts bytes in use while the ops of a pass come and go.
class Tape {
 public:
  void take(int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }
  void drop(int64_t bytes) { now_ -= bytes; }
  int64_t peak() const { return peak_; }

  // A product with all rows: then a border's rows of the sum over T. Of own rows: the product is that.
  void reduced(const Sizes& s, bool own) {
    take(own ? s.border : s.whole);
    if (!s.sharded || own) return;
    take(s.padded);
    take(s.border);
    drop(s.whole + s.padded);
  }

 private:
  int64_t now_ = 0, peak_ = 0;
};

int64_t block_forward(const BlockSizes& s, bool recompute_attention) {
  const int64_t of_all = s.own_attention ? s.gathered : 0;  // of each of q, k and v
  const int64_t attention_input = s.own_attention ? 0 : s.gathered, mlp_input = s.own_mlp ? 0 : s.gathered;
  Tape tape;
  tape.take(s.border + s.statistics);  // the norm
  tape.take(attention_input);
  tape.take(3 * s.attended);  // q, k, v
  tape.drop(attention_input);
  tape.take(3 * of_all);
  if (s.own_attention) tape.drop(3 * s.attended);
  tape.take(s.mixed + s.sums);
  if (s.own_attention) tape.take(s.attended);
  tape.reduced(s, s.own_attention);  // the projection, which lives to the end of the pass
  if (recompute_attention) tape.drop(s.mixed + s.sums);
  tape.take(s.residual);  // x + attention
  if (!s.parallel) tape.take(s.border + s.statistics);
  tape.take(mlp_input);
  tape.take(s.inner);
  tape.drop(mlp_input);
  tape.take(s.inner);  // the activation
  tape.reduced(s, s.own_mlp);
  tape.take(s.residual);  // the result
  return tape.peak();
}

// Through `result = input W`, from a gradient of `outputs` bytes; the layer's gradient of the border is added. last:
// nobody else needs the input.
void column_backward(Tape& tape, const Sizes& s, int64_t outputs, bool own, bool at_once, bool last) {
  const int64_t input = own ? 0 : s.gathered;
  if (at_once) tape.take(input);
  tape.reduced(s, own);
  if (at_once) tape.drop(input + (last ? s.border : 0) + outputs);  // the norm, and the gradient
}

// From the gradient after the attention's dropout to that of q, k and v.
void attention_backward(Tape& tape, const BlockSizes& s, bool recompute_attention, bool at_once) {
  if (recompute_attention) tape.take(s.mixed + s.sums);
  const int64_t result = s.own_attention ? 0 : s.gathered;
  tape.take(result);
  tape.take(s.attended);
  if (at_once) tape.drop(result + s.border);
  int64_t d_mixed = s.mixed;
  if (s.own_attention) {
    d_mixed = s.gathered;
    tape.take(d_mixed);
    tape.drop(s.attended + (at_once ? s.attended : 0));  // its own rows' gradient, and what the projection took
  }
  tape.take(3 * s.mixed);  // of q, k and v, one by one
  tape.take(3 * s.mixed);  // together
  tape.drop(3 * s.mixed);
  const bool kept = !at_once && !s.own_attention;  // the mix waits with the projection's weights
  tape.drop(3 * (s.own_attention ? s.gathered : s.mixed) + s.sums + d_mixed + (kept ? 0 : s.mixed));  // q, k, v, ...
  if (!s.own_attention) return;
  tape.take(3 * s.attended);
  tape.drop(3 * s.mixed);
}

int64_t block_backward(const BlockSizes& s, bool recompute_attention, bool at_once) {
  const int64_t mlp_result = s.own_mlp ? 0 : s.gathered;
  Tape tape;
  tape.take(s.border);  // the gradient after the dropout
  tape.take(mlp_result);
  tape.take(s.inner);
  if (at_once) tape.drop(s.inner + mlp_result + s.border);  // the activation, and the gradients after it
  tape.take(s.inner);
  tape.drop(2 * s.inner);  // before the activation, and the gradient after it
  column_backward(tape, s, s.inner, s.own_mlp, at_once, !s.parallel);
  if (!s.parallel) {
    tape.take(s.residual);                            // through the norm
    tape.drop(s.residual + s.border + s.statistics);  // its input, and the gradient after it
    tape.take(s.residual);                            // with the residual's
    tape.drop(s.residual);
  }

  tape.take(s.border);
  attention_backward(tape, s, recompute_attention, at_once);
  column_backward(tape, s, 3 * s.attended, s.own_attention, at_once, true);
  if (s.parallel) tape.drop(s.border);  // the gradient of this branch is added to the other's
  tape.take(s.residual);
  return tape.peak();
}

}  // namespace

KeptBytes causal_block_kept(const CausalConfig& c, BlockSplit split, const KeptCase& at) {
  const BlockSizes s(c, split, at);
  const int64_t norms = s.parallel ? 1 : 2;
  const int64_t norm = s.residual + s.border + s.statistics;                // x and its norm
  const int64_t attention = at.recompute_attention ? 0 : s.mixed + s.sums;  // result, log of sums of exponentials
  const int64_t own = s.own_attention ? s.attended : 0;                     // the result's rows
  // qkv; before and after the activation
  const int64_t kept = norms * norm + 3 * s.mixed + attention + own + 2 * s.inner;
  const int64_t results = (s.own_attention ? s.border : s.whole) + (s.own_mlp ? s.border : s.whole);
  // X of qkv and fc, their dY; X and dY of out and proj.
  const int64_t pairs = norms * s.border + 4 * s.attended + 2 * s.inner + results;
  return {.activations = kept, .weight_pairs = pairs};
}

PassBytes causal_block_passes(const CausalConfig& c, BlockSplit split, const KeptCase& at) {
  const BlockSizes s(c, split, at);
  return {.forward = block_forward(s, at.recompute_attention),
          .backward = block_backward(s, at.recompute_attention, true),
          .input_gradient = block_backward(s, at.recompute_attention, false)};
}

PassBytes causal_embedding_passes(const CausalConfig& c, bool split, const KeptCase& at) {
  const Sizes s(c, at);
  const bool own = s.sharded && !split;
  const int64_t found = own ? s.border : s.whole;  // words, at most as many
  Tape forward;
  forward.take(found);
  forward.take(found);
  forward.drop(found);
  if (s.sharded && !own) forward.take(s.padded + s.border);
  if (s.sharded && !own) forward.drop(s.padded + s.whole);
  if (s.residual != s.border) forward.take(s.residual);  // in the type of borders
  if (s.residual != s.border) forward.drop(s.border);
  const bool drops = c.embd_pdrop > 0;
  forward.take(c.position_table ? s.border : 0);  // of the positions
  forward.drop(c.position_table ? s.border : 0);
  forward.take(drops ? s.residual : 0);  // the result of the dropout
  const int64_t rows = s.gathered + s.whole;
  const int64_t backward = (drops ? s.residual : 0) + (split ? rows / s.element * at.border_bytes : 0);
  return {.forward = forward.peak(), .backward = backward, .input_gradient = backward};
}

// x, its statistics, and the gradient of its norm, which the forward pass makes.
KeptBytes causal_head_kept(const CausalConfig& c, const KeptCase& at) {
  const Sizes s(c, at);
  return {.activations = s.residual + s.border + s.statistics};
}

PassBytes causal_head_passes(const CausalConfig& c, bool split, const KeptCase& at) {
  const Sizes s(c, at);
  const bool own = s.sharded && !split;
  const int64_t words = split ? split_range(c.vocab_size, at.t_degree, at.t).length : c.vocab_size;
  Tape forward;
  forward.take(s.border + s.statistics);
  forward.take(own ? 0 : s.gathered);
  forward.take(own ? s.border : s.whole);  // the gradient of the norm
  const int64_t block = std::min(own ? at.rows : at.tokens, kHeadBlockTokens);
  forward.take(block * words * s.element);
  const int64_t bias_sums = c.head_bias ? (RowBlocks(block).count + 1) * words * s.wide : 0;
  forward.take(bias_sums);
  forward.drop(bias_sums);
  if (s.sharded && !own) forward.take(s.padded + s.border);
  return {.forward = forward.peak(), .backward = s.residual, .input_gradient = s.residual};
}

}  // namespace shardline
