// Token embedding, and that of positions where a model has a table of them; the vocabulary is split over the T ranks,
// or whole on each.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Ids are within the whole vocabulary; the maker of the batch checks this (engine/data/dataset/batch_source.h). words
// [vocabulary of this rank, hidden] (its entries start at first_word), positions [max_positions, hidden] or null.
// Returns border rows [rows, hidden] of type `border`: the words' own unless said otherwise (fp32 between
// half-precision layers: fp32_residual_addition). Gradients are added in the order of the tokens. Where the words' spec
// splits nothing, first_word is 0 and each rank looks its own rows' words up: the words' gradient is then that of these
// rows.
at::Tensor embedding(const TensorParallel& tp, const Microbatch& batch, Parameter& words, int64_t first_word,
                     Parameter* positions, std::optional<at::ScalarType> border = {});

}  // namespace shardline
