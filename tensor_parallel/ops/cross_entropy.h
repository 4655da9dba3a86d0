// The head over the vocabulary and its loss in one op: logits exist only for one block of tokens at a time, and their
// gradient replaces them, so [tokens, vocabulary] never exists as a whole. All three products run in the forward pass,
// so the weight gradient is never deferred. With half-precision weights, a block's logits and their gradient are in
// half precision; the softmax, the loss and the gradient of w are fp32.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Number of tokens whose logits exist at a time: few on CPUs, so that they stay in cache; on accelerators enough to
// keep them busy, using the same memory for every type.
int64_t head_block_tokens(at::Device device, int64_t element_bytes);

// Labels must be within the whole vocabulary, or -100; whoever makes the batch checks this
// (engine/data/dataset/batch_source.h). x: border rows [rows, hidden]; w [vocabulary of this rank, hidden], whose
// entries start at first_word. Labels are those of the microbatch. `rows`: x has only the border rows of these rows of
// the microbatch (picked_rows.h). Stores (sum, weight) in the context. In Mode::train, returns the loss sum times
// context.loss_scale, a scalar of at least fp32 with a backward; otherwise undefined. b [vocabulary of this rank],
// split like w, or null. If the spec of w is not split, each rank computes its own border rows with all words, and the
// gradients of w and b are those of its rows.
at::Tensor head_cross_entropy(const TensorParallel& tp, const at::Tensor& x, Parameter& w, Parameter* b,
                              int64_t first_word, MicrobatchContext& context, const at::Tensor& rows = {});

// Logits of the last row of each segment, complete on every rank: [segments, vocabulary], at least fp32.
at::Tensor head_last_logits(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                            const Microbatch& batch);

// Which words the search looks for.
inline constexpr int64_t kBestWords = 5;
struct WordSearch {
  int64_t most = kBestWords;  // for each row
  // int64 [rows, n]: the only words to consider for a row, followed by -1 if there are fewer than n. For a row with -1
  // alone, or if undefined, all words are considered.
  at::Tensor only = {};
};
// The search for the words of these rows of a microbatch. Its targets, if defined, are int64 [segments, 1 + n]:
// how many words to find for the rows of a segment (the search uses the largest number), then the only words to
// consider, as above.
WordSearch word_search(const Microbatch& batch, const at::Tensor& rows);

// The words that the head finds most probable for each of `count` rows, whose border rows are x. Complete on every
// rank: [count, 2 x most], at least fp32. The first half of a row has their ids, the best word first, the second half
// the logarithms of their probabilities among all words; if there are fewer words, these are minus infinity.
at::Tensor head_best_words(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                           int64_t first_word, int64_t count, const WordSearch& search = {});

}  // namespace shardline
