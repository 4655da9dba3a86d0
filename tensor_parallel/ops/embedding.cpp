#include "tensor_parallel/ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/backward.h"
#include "core/model/work_notes.h"
#include "core/numbers/half_numbers.h"
#include "core/numbers/philox_block.h"
#include "tensor_parallel/kernels/aten/aten_random.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/ops/elementwise.h"

namespace shardline {
namespace {

// The ids that are among this rank's words, and their indices there.
struct LocalWords {
  at::Tensor rows;   // their positions in the microbatch [found]
  at::Tensor words;  // their local indices [found]
};

LocalWords find_words(const at::Tensor& ids, int64_t first, int64_t count) {
  if (ids.is_meta()) return {ids, ids};  // an upper bound
  const auto local = ids - first;
  const auto rows = ((local >= 0) & (local < count)).nonzero().squeeze(1);
  return {rows, local.index_select(0, rows)};
}

at::Tensor rows_of(const at::Tensor& table, const at::Tensor& index) {
  if (index.is_meta()) return at::empty({index.numel(), table.size(1)}, table.options());
  return table.index_select(0, index);
}

// Used if the host would have to wait for an accelerator to learn which ids are among this rank's words: maps all ids
// to words of this rank, and marks those that belong to other ranks.
struct MaskedWords {
  MaskedWords(const at::Tensor& ids, int64_t first, int64_t count) {
    const auto local = ids - first;
    foreign = local.lt(0).bitwise_or_(local.ge(count)).unsqueeze_(1);
    words = local.remainder_(std::max<int64_t>(count, 1));  // spreads the ids of other ranks over the table
  }
  at::Tensor words;    // [tokens], each within the table
  at::Tensor foreign;  // [tokens, 1] bool
};

// The rows of this rank's words [tokens, hidden]; 0 for other ranks' words.
at::Tensor partial_rows(const at::Tensor& table, const at::Tensor& ids, int64_t first) {
  const int64_t count = table.size(0);
  if (is_accelerator(table) && count > 0) {
    const MaskedWords masked(ids, first, count);
    return rows_of(table, masked.words).masked_fill_(masked.foreign, 0);
  }
  auto partial = at::zeros({ids.numel(), table.size(1)}, table.options().requires_grad(false));
  if (count == 0) return partial;
  const auto found = find_words(ids, first, count);
  return partial.index_copy_(0, found.rows, rows_of(table, found.words));
}

// The word of each border row that is a token.
at::Tensor words_of_rows(const TensorParallel& tp, const Microbatch& batch) {
  const Range mine = tokens_of_rows(tp, batch.tokens());
  return batch.ids.narrow(0, mine.length == 0 ? 0 : mine.begin, mine.length);
}

// The index in an added table for each border row that is a token.
at::Tensor entries_of_rows(const TensorParallel& tp, const Microbatch& batch, const AddedTable& added) {
  if (added.by == AddedTable::By::position) {
    const auto positions = positions_of_rows(tp, batch);
    return added.first == 0 || positions.is_meta() ? positions : positions + added.first;
  }
  const Range mine = tokens_of_rows(tp, batch.tokens());
  if (!batch.types.defined()) return at::zeros({mine.length}, batch.ids.options());
  return batch.types.narrow(0, mine.length == 0 ? 0 : mine.begin, mine.length);
}

// table[index[i]] += rows[i], in ascending i. On GPUs, index_add_ would add with atomics, in any order; index_put_ with
// accumulation sorts.
void add_rows(at::Tensor table, const at::Tensor& index, const at::Tensor& rows) {
  if (runs_loops(rows) && !is_accelerator(rows)) return add_indexed_rows(table, index.contiguous(), rows.contiguous());
  const at::Tensor exact = rows.to(table.scalar_type());
  if (!rows.is_meta()) table.index_put_({index}, exact, /*accumulate=*/true);
}

// Adds the gradients of this rank's words, given those of all tokens.
void add_partial_rows(const at::Tensor& gradient, const at::Tensor& ids, int64_t first, const at::Tensor& dy) {
  const int64_t count = gradient.size(0);
  if (count == 0) return;
  if (is_accelerator(gradient)) {
    const MaskedWords masked(ids, first, count);
    return add_rows(gradient, masked.words, dy.masked_fill(masked.foreign, 0));
  }
  const auto found = find_words(ids, first, count);
  add_rows(gradient, found.words, rows_of(dy, found.rows));
}

// Calls use(tokens, length of the segment) for the part of each segment within a range of the microbatch's tokens.
template <class Use>
void for_segments(const Microbatch& batch, Range range, const Use& use) {
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    const int64_t first = std::max(begin, range.begin), last = std::min(end, range.end());
    if (first < last) use(Range{first, last - first}, end - begin);
    begin = end;
  }
}

}  // namespace

at::Tensor embedding(const TensorParallel& tp, const Microbatch& batch, Parameter& words, int64_t first_word,
                     const std::vector<AddedTable>& added, std::optional<at::ScalarType> border) {
  const int64_t tokens = batch.tokens(), hidden = words.value.size(1), valid = valid_border_rows(tp, tokens);
  const bool split = words.spec->split_dim >= 0;
  const int64_t looked_up = (split ? tokens : border_rows(tokens, tp.size(), tp.sequence_parallel)) * hidden;
  at::Tensor y;
  {
    at::NoGradGuard no_grad;
    note_sweep(looked_up, 2, 0, 2);
    if (split) {
      y = reduce_rows(tp, partial_rows(words.value, batch.ids, first_word));
    } else {
      const int64_t rows = border_rows(tokens, tp.size(), tp.sequence_parallel);
      y = at::zeros({rows, hidden}, words.value.options().requires_grad(false));
      y.narrow(0, 0, valid).copy_(rows_of(words.value, words_of_rows(tp, batch)));
    }
    y = y.to(border.value_or(words.value.scalar_type()));
    for (const AddedTable& one : added) {
      note_sweep(y.numel(), 2);
      y.narrow(0, 0, valid).add_(rows_of(one.table->value, entries_of_rows(tp, batch, one)));
    }
  }
  // Everything is derived from the batch again: nothing is kept.
  return with_backward(y, {}, {}, "Embedding", [=, &batch, &words](const at::Tensor& d_y, const SavedTensors&) {
    const auto dy = d_y.contiguous();
    note_sweep(looked_up, 3, 0, 1 + added.size());
    for (const AddedTable& one : added)
      if (one.table->grad.defined()) add_rows(one.table->grad, entries_of_rows(tp, batch, one), dy.narrow(0, 0, valid));
    const auto dy_all = split ? gather_rows(tp, dy, tokens) : dy.narrow(0, 0, valid);
    if (words.grad.defined() && split) {
      add_partial_rows(words.grad, batch.ids, first_word, dy_all);
    } else if (words.grad.defined()) {
      add_rows(words.grad, words_of_rows(tp, batch), dy_all);
    }
    return std::vector<at::Tensor>{};
  });
}

namespace {

constexpr int kNoiseSite = 1;                     // a site of the layer's random numbers; its dropout uses site 0
constexpr int64_t kNoiseBlockElements = 1 << 18;  // ATen makes the random numbers of this many elements at a time

// Converts a word to the same number in [-1, 1] on every device.
constexpr double kWordScale = 1.0 / (uint64_t{1} << 31);

template <class S>
void add_noise(S* row, int64_t hidden, const StreamWords& stream, uint64_t first, double bound) {
  const PhiloxKeys keys = philox_keys(stream.key0, stream.key1);
  PhiloxBlock block = stream.block(first / 4, keys);
  for (int64_t i = 0; i < hidden; ++i) {
    const uint64_t element = first + i;
    if (i > 0 && element % 4 == 0) block = stream.block(element / 4, keys);
    const double uniform = (block.word[element % 4] + 0.5) * kWordScale - 1;
    row[i] = narrow<S>(widen(row[i]) + Wide<S>(bound * uniform));
  }
}

void add_noise_by_loops(const MicrobatchContext& context, const RandomStream& stream, Range mine, at::Tensor rows) {
  const Microbatch& batch = *context.batch;
  const auto *samples = batch.samples.const_data_ptr<int64_t>(), *places = batch.places.const_data_ptr<int64_t>();
  const int64_t hidden = rows.size(1);
  with_type_of(rows, [&](auto type) {
    using S = decltype(type);
    S* values = numbers<S>(rows);
    for_segments(batch, mine, [&](Range tokens, int64_t length) {
      const double bound = context.embedding_noise / std::sqrt(1.0 * length * hidden);
      for (int64_t token = tokens.begin; token < tokens.end(); ++token)
        add_noise(values + (token - mine.begin) * hidden, hidden,
                  stream_words(stream.seed, stream.op, stream.step, samples[token]), places[token] * hidden, bound);
    });
  });
}

// Fills a few rows at a time, because the random integers take several times as much memory as the rows.
void add_noise_by_operators(const MicrobatchContext& context, const RandomStream& stream, Range mine, at::Tensor rows) {
  const Microbatch& batch = *context.batch;
  const int64_t hidden = rows.size(1), at_a_time = std::max<int64_t>(1, kNoiseBlockElements / hidden);
  const auto columns = at::arange(hidden, batch.places.options());
  for (int64_t begin = mine.begin; begin < mine.end(); begin += at_a_time) {
    const Range block{begin, std::min(at_a_time, mine.end() - begin)};
    const auto key = [&](const at::Tensor& keys) { return keys.narrow(0, block.begin, block.length).unsqueeze(1); };
    const auto words = aten::random_words(stream, key(batch.samples), key(batch.places) * hidden + columns);
    const auto noise = words.to(at::kDouble).add_(0.5).mul_(kWordScale).sub_(1);
    for_segments(batch, block, [&](Range tokens, int64_t length) {
      noise.narrow(0, tokens.begin - begin, tokens.length)
          .mul_(context.embedding_noise / std::sqrt(1.0 * length * hidden));
    });
    const auto to = rows.narrow(0, begin - mine.begin, block.length);
    to.copy_(to.to(wide_type(to)) + noise.to(wide_type(to)));
  }
}

}  // namespace

void add_embedding_noise(const TensorParallel& tp, const MicrobatchContext& context, int64_t layer, at::Tensor rows) {
  if (context.mode != Mode::train || context.embedding_noise == 0) return;
  const Range mine = tokens_of_rows(tp, context.batch->tokens());
  const RandomStream stream{context.seed, dropout_op(layer, kNoiseSite), static_cast<uint32_t>(context.step)};
  const at::NoGradGuard no_grad;
  if (runs_loops(rows))
    add_noise_by_loops(context, stream, mine, rows);
  else
    add_noise_by_operators(context, stream, mine, rows);
}

}  // namespace shardline
