#include "models/gpt2_memory.h"

#include <algorithm>

#include "tensor_parallel/cross_entropy.h"

namespace shardline {
namespace {

// The elements of a layer's tensors on one rank.
struct Sizes {
  Sizes(const Gpt2Config& c, const KeptCase& at)
      : whole(at.tokens * c.n_embd),
        border(at.rows * c.n_embd),
        statistics(2 * at.rows),
        mixed(at.tokens * heads_of(c, at) * c.head_dim()),
        sums(at.tokens * heads_of(c, at)),
        inner(at.tokens * split_range(c.inner(), at.t_degree, at.t).length),
        sharded(at.rows < at.tokens),
        gathered(sharded ? border * at.t_degree : 0),
        padded(gathered > whole ? gathered : 0) {}

  static int64_t heads_of(const Gpt2Config& c, const KeptCase& at) {
    return split_range(c.n_head, at.t_degree, at.t).length;
  }

  int64_t whole;       // [tokens, hidden]
  int64_t border;      // [rows, hidden]
  int64_t statistics;  // of a norm: mean, 1 / deviation
  int64_t mixed;       // of attention; of each of q, k and v
  int64_t sums;        // logs of sums of exponentials
  int64_t inner;
  bool sharded;      // rows are, over T
  int64_t gathered;  // a border of all ranks; 0 where it is whole already
  int64_t padded;    // what is given to a reduce-scatter, unless it is the product itself
};

// Counts elements in use while the ops of a pass come and go.
class Tape {
 public:
  void take(int64_t elements) { peak_ = std::max(peak_, now_ += elements); }
  void drop(int64_t elements) { now_ -= elements; }
  int64_t peak() const { return peak_; }

  // A product with all rows: then a border's rows of the sum over T.
  void reduced(const Sizes& s) {
    take(s.whole);
    if (!s.sharded) return;
    take(s.padded);
    take(s.border);
    drop(s.whole + s.padded);
  }

 private:
  int64_t now_ = 0, peak_ = 0;
};

int64_t block_forward(const Sizes& s, bool recompute_attention) {
  Tape tape;
  tape.take(s.border + s.statistics);  // the norm
  tape.take(s.gathered);
  tape.take(3 * s.mixed);  // q, k, v
  tape.drop(s.gathered);
  tape.take(s.mixed + s.sums);
  tape.reduced(s);  // the projection, which lives to the end of the pass
  if (recompute_attention) tape.drop(s.mixed + s.sums);
  tape.take(s.border);  // x + attention
  tape.take(s.border + s.statistics);
  tape.take(s.gathered);
  tape.take(s.inner);
  tape.drop(s.gathered);
  tape.take(s.inner);  // the activation
  tape.reduced(s);
  tape.take(s.border);  // the result
  return tape.peak();
}

// Through `result = input W`, from a gradient of `outputs` elements; the layer's gradient of the border is added.
void column_backward(Tape& tape, const Sizes& s, int64_t outputs, bool at_once) {
  if (at_once) tape.take(s.gathered);
  tape.reduced(s);
  if (at_once) tape.drop(s.gathered + s.border + outputs);  // the norm, and the gradient
}

int64_t block_backward(const Sizes& s, bool recompute_attention, bool at_once) {
  Tape tape;
  tape.take(s.border);  // the gradient behind the dropout
  tape.take(s.gathered);
  tape.take(s.inner);
  if (at_once) tape.drop(s.inner + s.gathered + s.border);  // the activation, and the gradients behind it
  tape.take(s.inner);
  tape.drop(2 * s.inner);  // before the activation, and the gradient behind it
  column_backward(tape, s, s.inner, at_once);
  tape.take(s.border);                     // through the norm
  tape.drop(2 * s.border + s.statistics);  // its input, and the gradient behind it
  tape.take(s.border);                     // with the residual's
  tape.drop(s.border);

  tape.take(s.border);
  if (recompute_attention) tape.take(s.mixed + s.sums);
  tape.take(s.gathered);
  tape.take(s.mixed);
  if (at_once) tape.drop(s.gathered + s.border);
  tape.take(3 * s.mixed);  // of q, k and v, one by one
  tape.take(3 * s.mixed);  // together
  tape.drop(3 * s.mixed);
  tape.drop(3 * s.mixed + s.sums + s.mixed + (at_once ? s.mixed : 0));  // q, k, v, the sums, both gradients
  column_backward(tape, s, 3 * s.mixed, at_once);
  tape.take(s.border);
  return tape.peak();
}

}  // namespace

KeptBytes gpt2_block_kept(const Gpt2Config& c, const KeptCase& at) {
  const Sizes s(c, at);
  const int64_t norm = 2 * s.border + s.statistics;                         // x and its norm
  const int64_t attention = at.recompute_attention ? 0 : s.mixed + s.sums;  // result, log of sums of exponentials
  const int64_t kept = 2 * norm + 3 * s.mixed + attention + 2 * s.inner;    // qkv; before and after the activation
  // X of qkv and fc, their dY; X and dY of out and proj.
  const int64_t pairs = 2 * s.border + 4 * s.mixed + 2 * s.inner + 2 * s.whole;
  return {.activations = at.element_bytes * kept, .weight_pairs = at.element_bytes * pairs};
}

PassBytes gpt2_block_passes(const Gpt2Config& c, const KeptCase& at) {
  const Sizes s(c, at);
  return {.forward = at.element_bytes * block_forward(s, at.recompute_attention),
          .backward = at.element_bytes * block_backward(s, at.recompute_attention, true),
          .input_gradient = at.element_bytes * block_backward(s, at.recompute_attention, false)};
}

PassBytes gpt2_embedding_passes(const Gpt2Config& c, const KeptCase& at) {
  const Sizes s(c, at);
  Tape forward;
  forward.take(s.whole);
  forward.take(s.whole);  // the words found, at most all
  forward.drop(s.whole);
  if (s.sharded) forward.take(s.padded + s.border);
  if (s.sharded) forward.drop(s.padded + s.whole);
  forward.take(s.border);  // of the positions; then the result of the dropout
  const bool drops = c.embd_pdrop > 0;
  const int64_t backward = (drops ? s.border : 0) + s.gathered + s.whole;
  return {.forward = at.element_bytes * forward.peak(),
          .backward = at.element_bytes * backward,
          .input_gradient = at.element_bytes * backward};
}

// x, its statistics, and the gradient of its norm, which the forward pass makes.
KeptBytes gpt2_head_kept(const Gpt2Config& c, const KeptCase& at) {
  const Sizes s(c, at);
  return {.activations = at.element_bytes * (2 * s.border + s.statistics)};
}

PassBytes gpt2_head_passes(const Gpt2Config& c, const KeptCase& at) {
  const Sizes s(c, at);
  const int64_t words = split_range(c.vocab_size, at.t_degree, at.t).length;
  Tape forward;
  forward.take(s.border + s.statistics);
  forward.take(s.gathered);
  forward.take(s.whole);  // the gradient of the norm
  forward.take(std::min(at.tokens, kHeadBlockTokens) * words);
  if (s.sharded) forward.take(s.padded + s.border);
  return {.forward = at.element_bytes * forward.peak(),
          .backward = at.element_bytes * s.border,
          .input_gradient = at.element_bytes * s.border};
}

}  // namespace shardline
