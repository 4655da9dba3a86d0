// The head over the words and its loss in one op: logits exist only for a block of tokens at a time, and their gradient
// takes their place, so [tokens, vocabulary] never exists as a whole. All three products run in the forward pass, so
// the weight gradient is never deferred. With half-precision weights a block's logits and their gradient are half
// precision; the softmax, the loss and the gradient of w are fp32.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Tokens whose logits exist at a time: few on CPUs, so that they stay in the cache; on accelerators as many as keep
// them busy, in the same memory for every type.
int64_t head_block_tokens(at::Device device, int64_t element_bytes);

// Labels are within the whole vocabulary, or -100; the maker of the batch checks this
// (engine/data/dataset/batch_source.h). x: border rows [rows, hidden]; w [vocabulary of this rank, hidden], its entries
// starting at first_word. Labels are the microbatch's own. `rows`: x has the border rows of these rows of the
// microbatch alone (picked_rows.h). Leaves (sum, weight) in the context. Mode::train: returns the loss sum times
// context.loss_scale, a scalar of at least fp32 with a backward. Else: undefined. b [vocabulary of this rank], split as
// w is, or null. Where the spec of w splits nothing, each rank computes its own border rows with all words, and the
// gradients of w and b are those of its rows.
at::Tensor head_cross_entropy(const TensorParallel& tp, const at::Tensor& x, Parameter& w, Parameter* b,
                              int64_t first_word, MicrobatchContext& context, const at::Tensor& rows = {});

// Logits of the last row of each segment, whole on every rank: [segments, vocabulary], at least fp32.
at::Tensor head_last_logits(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                            const Microbatch& batch);

// The words that the head finds most probable for each of the `count` rows whose border rows x are, whole on every
// rank: [count, 2 x kBestWords], of at least fp32. The first half of a row are their ids, the best word first, the
// second half the logarithms of their probabilities; where the vocabulary has fewer words, these are minus infinity.
inline constexpr int64_t kBestWords = 5;
at::Tensor head_best_words(const TensorParallel& tp, const at::Tensor& x, const Parameter& w, const Parameter* b,
                           int64_t first_word, int64_t count);

}  // namespace shardline
