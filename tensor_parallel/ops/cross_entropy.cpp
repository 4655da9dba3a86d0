#include "tensor_parallel/ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/work_notes.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/picked_rows.h"
#include "tensor_parallel/ops/scaled_loss.h"
#include "tensor_parallel/products/products.h"

namespace shardline {
namespace {

// Label smoothing: probability 1 - share for the label itself plus share / words for each word (Szegedy et al. 2016,
// arXiv 1512.00567, section 7).
struct Smoothing {
  double share;
  double words;  // number of words in the whole vocabulary

  // This rank's part of the expected logit under a row's smoothed labels: from the row's label, and from the words.
  at::Tensor expected(const at::Tensor& logits, const at::Tensor& target) const {
    if (share == 0) return target;
    const auto sums = at::empty_like(target);
    const int64_t most = is_accelerator(logits) ? logits.size(0) : 16;  // on CPUs, half-precision sums copy the rows
    for (int64_t row = 0, rows; row < logits.size(0); row += rows) {
      rows = std::min(most, logits.size(0) - row);
      sums.narrow(0, row, rows).copy_(logits.narrow(0, row, rows).sum(1, false, target.scalar_type()));
    }
    return target * (1 - share) + sums * (share / words);
  }
  // logits: the gradients for labels without smoothing, times each row's weight.
  void add_to_gradient(const at::Tensor& logits, const at::Tensor& label, const at::Tensor& weight) const {
    if (share == 0 || logits.numel() == 0) return;
    const auto of_rows = [&](const at::Tensor& values) { return values.to(logits.scalar_type()).unsqueeze(1); };
    logits.sub_(of_rows(weight * (share / words)));
    const auto is_here = label.ge(0).logical_and_(label.lt(logits.size(1)));
    logits.scatter_add_(1, label.clamp(0, logits.size(1) - 1).unsqueeze(1), of_rows(weight * is_here * share));
  }
};

// Each row's log of the sum of exponentials over the whole vocabulary, and the logit that its labels expect.
std::pair<at::Tensor, at::Tensor> whole_stats(const TensorParallel& tp, const at::Tensor& logits,
                                              const at::Tensor& label, const Smoothing& smoothing) {
  auto [largest, sum, label_logit] = cross_entropy_stats(logits, label);
  const auto target = smoothing.expected(logits, label_logit);
  if (tp.size() == 1) return {largest + sum.log(), target};
  const auto all = gather_to_all(*tp.comm, at::stack({largest, sum, target}));  // [T, 3, rows]
  const auto all_largest = all.select(1, 0);
  const auto top = all_largest.amax(0);
  const auto scaled = all.select(1, 1) * (all_largest - top).exp();
  return {top + scaled.sum(0).log(), all.select(1, 2).sum(0)};
}

// The tokens that this rank computes, and the ranks with which it shares the vocabulary: a rank with all words computes
// only its own border rows; otherwise each rank computes its part of the words for all tokens.
struct HeadPart {
  HeadPart(const TensorParallel& tp, const at::Tensor& x, int64_t all_tokens, const Parameter& w)
      : split(w.spec->split_dim >= 0),
        words(split ? tp : TensorParallel{}),
        input(gather_rows(words, x.detach(), all_tokens)),
        tokens(split ? input.size(0) : valid_border_rows(tp, all_tokens)),
        first_token(split || tokens == 0 || !tp.sequence_parallel ? 0 : tp.rank() * input.size(0)) {}

  bool split;
  TensorParallel words;
  at::Tensor input;  // [rows, hidden], the first `tokens` of which are tokens
  int64_t tokens, first_token;
};

// Whether a kernel computed the loss of a block, added it to the sums, and replaced the logits by the gradient.
bool at_once(const HeadPart& part, const at::Tensor& logits, const at::Tensor& label, const at::Tensor& sums,
             std::optional<double> gradient_scale) {
  if (runs_loops(logits) || part.words.size() > 1) return false;
  const auto kernel = kernels_for(logits).whole_cross_entropy_;
  return kernel != nullptr && kernel(logits, label, sums, gradient_scale);
}

// Room for the logits of a block. On accelerators, rows are aligned to at least 128 bytes for any vocabulary size,
// because products and kernels read and write several numbers at once.
at::Tensor room_for_logits(const HeadPart& part, int64_t words) {
  const int64_t rows = std::min(part.tokens, head_block_tokens(part.input.device(), part.input.element_size()));
  constexpr int64_t kMultiple = 64;
  const int64_t stride = is_accelerator(part.input) ? (words + kMultiple - 1) / kMultiple * kMultiple : words;
  return at::empty({rows, stride}, part.input.options()).narrow(1, 0, words);
}

// Processes blocks of tokens and returns the sums of losses and of weights [2]; in training, also computes the
// gradients of w, of b and of the input, dx.
at::Tensor loss_of_blocks(const HeadPart& part, const at::Tensor& labels, const at::Tensor& all_logits,
                          const at::Tensor& dx, Parameter& w, Parameter* b, int64_t first_word,
                          const MicrobatchContext& context) {
  const auto label = labels.narrow(0, part.first_token, part.tokens);
  const auto valid = label != kNoLabel;
  const auto local_label = at::where(valid, label - first_word, int64_t{-1});
  const auto sums = at::zeros({2}, valid.options().dtype(at::kDouble));
  const Smoothing smoothing{context.label_smoothing, static_cast<double>(w.spec->shape[0])};
  for (int64_t first = 0, rows; first < part.tokens; first += rows) {
    rows = std::min(all_logits.size(0), part.tokens - first);
    const auto x = part.input.narrow(0, first, rows), logits = all_logits.narrow(0, 0, rows);
    const auto block_label = local_label.narrow(0, first, rows), block_valid = valid.narrow(0, first, rows);
    linear_forward_out(logits, x, w.value, b ? b->value : at::Tensor());
    const auto gradient_scale = dx.defined() ? std::optional(context.loss_scale) : std::nullopt;
    if (smoothing.share > 0 || !at_once(part, logits, block_label, sums, gradient_scale)) {
      const auto [log_sum_exp, target] = whole_stats(part.words, logits, block_label, smoothing);
      sums[0].add_(at::where(block_valid, log_sum_exp - target, 0.0).to(at::kDouble).sum());
      sums[1].add_(block_valid.sum());
      if (dx.defined()) {
        const auto weight = block_valid.to(log_sum_exp.scalar_type()) * context.loss_scale;
        cross_entropy_gradient_(logits, block_label, log_sum_exp, weight);
        smoothing.add_to_gradient(logits, block_label, weight);
      }
    }
    if (!dx.defined()) continue;
    linear_input_gradient_out(dx.narrow(0, first, rows), logits, w.value, false);
    if (w.grad.defined()) add_weight_gradient(w.grad, logits, x);
    if (b && b->grad.defined()) add_bias_gradient(b->grad, logits);
  }
  return sums;
}

// Replaces loss_of_blocks in a dry run: allocates the sums for the input's gradient and for the bias's gradient, which
// are as wide as the vocabulary and which the kernel of accelerators does not need; notes the work, with all tokens as
// one block.
void note_blocks(const HeadPart& part, const at::Tensor& logits, const at::Tensor& dx, const Parameter& w,
                 const Parameter* b) {
  if (part.tokens == 0) return;
  if (dx.defined()) linear_input_gradient_out(dx.narrow(0, 0, logits.size(0)), logits, w.value, false);
  const int64_t words = w.value.size(0), hidden = w.value.size(1), elements = part.tokens * words;
  note_product(part.tokens, words, hidden);
  note_product(part.tokens, hidden, words);
  if (w.grad.defined()) note_product(words, hidden, part.tokens);
  if (b && b->grad.defined()) {
    note_sweep(elements, 1);
    const int64_t blocks = is_accelerator(logits) ? 0 : RowBlocks(logits.size(0)).count + 1;
    const auto sums = at::empty({blocks, words}, logits.options().dtype(wide_type(logits)));
  }
  // Logits and their gradient count once each if blocks of them fit in cache; whole fp32 logits pass through memory 12
  // times, for conversion, maximum, difference, exponential, sum, quotient, and back.
  const bool fused = !work_notes() || work_notes()->shape.fused;
  note_sweep(elements, 2, fused ? 0 : 12 * 4, fused ? 4 : 9);
}

// The loss of all rows and, in training, the gradient of x.
std::pair<LossTerm, at::Tensor> loss_and_gradient(const TensorParallel& tp, const at::Tensor& x, Parameter& w,
                                                  Parameter* b, int64_t first_word, const MicrobatchContext& context,
                                                  const at::Tensor& rows) {
  const HeadPart part(tp, x, count_of_rows(*context.batch, rows), w);
  const bool train = context.mode == Mode::train;
  const auto dx = train ? at::empty(part.input.sizes(), part.input.options()) : at::Tensor();
  if (train) dx.narrow(0, part.tokens, dx.size(0) - part.tokens).zero_();
  at::Tensor logits;
  if (part.tokens > 0) logits = room_for_logits(part, w.value.size(0));
  LossTerm loss;
  if (x.is_meta()) {
    note_blocks(part, logits, dx, w, b);
  } else {
    const auto labels = values_of_rows(context.batch->labels, rows);
    const auto sums = loss_of_blocks(part, labels, logits, dx, w, b, first_word, context);
    if (!part.split && tp.sequence_parallel && tp.size() > 1)  // each rank has the loss of its own rows
      tp.comm->all_reduce(sums, {.what = "loss of all rows"})->wait();
    const auto known = on_host(sums, "loss of a microbatch");
    loss = {known[0].item<double>(), known[1].item<double>()};
  }
  return {loss, train ? reduce_rows(part.words, dx) : dx};
}

// Replaces the logits of words that are not allowed for a row by minus infinity. only: the allowed words of these rows,
// see WordSearch.
void keep_only(const at::Tensor& logits, const at::Tensor& only, int64_t first_word) {
  const int64_t rows = logits.size(0), words = logits.size(1);
  const auto places = only - first_word;
  const auto is_here = only.ge(0).logical_and_(places.ge(0)).logical_and_(places.lt(words));
  auto may = at::zeros({rows, words + 1}, only.options().dtype(at::kBool));  // the last column: words of other ranks
  may.scatter_(1, at::where(is_here, places, words), true);
  const auto may_any = only.narrow(1, 0, 1).lt(0);
  logits.masked_fill_(may.narrow(1, 0, words).logical_or(may_any).logical_not_(),
                      -std::numeric_limits<double>::infinity());
}

// head_best_words for a block, from the logits of this rank's words, which it changes. only: the allowed words of its
// rows.
at::Tensor best_of_block(const HeadPart& part, const at::Tensor& logits, int64_t first_word, int64_t most,
                         const at::Tensor& only) {
  const int64_t rows = logits.size(0), mine = std::min(most, logits.size(1));
  const auto no_label = at::full({rows}, -1, logits.options().dtype(at::kLong));
  const auto log_sum_exp = whole_stats(part.words, logits, no_label, {}).first;
  if (only.defined()) keep_only(logits, only, first_word);
  const auto [values, places] = logits.topk(mine, 1);
  auto found = at::full({rows, 2, most}, -std::numeric_limits<double>::infinity(), log_sum_exp.options());
  found.select(1, 0).zero_();
  found.select(1, 0).narrow(1, 0, mine).copy_(places + first_word);
  found.select(1, 1).narrow(1, 0, mine).copy_(values);
  if (part.words.size() > 1) {
    const auto all = gather_to_all(*part.words.comm, found).permute({1, 2, 0, 3}).reshape({rows, 2, -1});
    const auto [best, from] = all.select(1, 1).topk(most, 1);
    found = at::stack({all.select(1, 0).gather(1, from), best}, 1);
  }
  found.select(1, 1).sub_(log_sum_exp.unsqueeze(1));
  return found.view({rows, -1});
}

}  // namespace

int64_t head_block_tokens(at::Device device, int64_t element_bytes) {
  return is_accelerator(device) ? 8192 / element_bytes : 256;
}

at::Tensor head_cross_entropy(const TensorParallel& tp, const at::Tensor& x, Parameter& w, Parameter* b,
                              int64_t first_word, MicrobatchContext& context, const at::Tensor& rows) {
  at::NoGradGuard no_grad;
  const auto [here, d_border] = loss_and_gradient(tp, x, w, b, first_word, context, rows);
  context.loss.sum += here.sum;
  context.loss.weight += here.weight;
  if (context.mode != Mode::train) return {};
  return scaled_loss(x, d_border, context);
}

WordSearch word_search(const Microbatch& batch, const at::Tensor& rows) {
  const at::Tensor& targets = batch.targets;
  if (!targets.defined() || targets.size(0) == 0) return {};
  const auto ends = on_device(at::tensor(batch.ends, at::kLong), targets.device());
  const auto segments = at::searchsorted(ends, rows, /*out_int32=*/false, /*right=*/true);
  const HostWait wait("number of words");
  WordSearch search{.most = targets.select(1, 0).max().item<int64_t>()};
  if (targets.size(1) > 1) search.only = targets.narrow(1, 1, targets.size(1) - 1).index_select(0, segments);
  return search;
}

at::Tensor head_best_words(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                           int64_t first_word, int64_t count, const WordSearch& search) {
  at::NoGradGuard no_grad;
  const HeadPart part(tp, x, count, w);
  const auto found =
      at::zeros({part.input.size(0), 2 * search.most}, part.input.options().dtype(wide_type(part.input)));
  at::Tensor room;
  if (part.tokens > 0) room = room_for_logits(part, w.value.size(0));
  for (int64_t first = 0, rows; first < part.tokens; first += rows) {
    rows = std::min(room.size(0), part.tokens - first);
    const auto logits = room.narrow(0, 0, rows);
    linear_forward_out(logits, part.input.narrow(0, first, rows), w.value, b ? b->value : at::Tensor());
    const auto only = search.only.defined() ? search.only.narrow(0, part.first_token + first, rows) : at::Tensor();
    found.narrow(0, first, rows).copy_(best_of_block(part, logits, first_word, search.most, only));
  }
  return part.split ? found : gather_rows(tp, found, count);
}

at::Tensor head_last_logits(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                            const Microbatch& batch) {
  at::NoGradGuard no_grad;
  const auto whole = gather_rows(tp, x, batch.tokens());
  const auto last = whole.index_select(0, at::tensor(batch.ends, whole.options().dtype(at::kLong)).sub(1));
  const auto local = linear_forward(last, w.value, b ? b->value : at::Tensor());
  if (tp.size() == 1 || w.spec->split_dim < 0) return local.to(wide_type(local));
  // Parts of the vocabulary differ by at most one entry: all are sent in the size of the largest.
  const int64_t vocabulary = w.spec->shape[0], widest = w.spec->split(0, tp.size()).length;
  auto padded = at::zeros({batch.segments(), widest}, local.options());
  padded.narrow(1, 0, local.size(1)).copy_(local);
  const auto all = gather_to_all(*tp.comm, padded);
  std::vector<at::Tensor> parts;
  for (int t = 0; t < tp.size(); ++t) parts.push_back(all[t].narrow(1, 0, w.spec->split(t, tp.size()).length));
  const auto logits = at::cat(parts, 1);
  SL_ASSERT(logits.size(1) == vocabulary, logits.size(1), " logits for a vocabulary of ", vocabulary);
  return logits.to(wide_type(logits));
}

}  // namespace shardline
