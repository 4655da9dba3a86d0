// Embedding of tokens and, if the model has tables of them, of positions and token types. The vocabulary is split over
// the T ranks, or whole on each.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// A table whose rows are added to the words: the row of each position, counted from entry `first`, or of each type.
struct AddedTable {
  enum class By { position, type };
  Parameter* table = nullptr;  // [entries, hidden]
  By by = By::position;
  int64_t first = 0;
};

// Ids must be within the whole vocabulary; whoever makes the batch checks this (engine/data/dataset/batch_source.h).
// words [vocabulary of this rank, hidden] (its entries start at first_word). Returns border rows [rows, hidden] of type
// `border`: the words' type unless stated otherwise (fp32 between half-precision layers: fp32_residual_addition).
// Gradients are added in token order. If the words' spec is not split, first_word is 0 and each rank looks up its own
// rows' words: the words' gradient then covers only these rows.
at::Tensor embedding(const TensorParallel& tp, const Microbatch& batch, Parameter& words, int64_t first_word,
                     const std::vector<AddedTable>& added, std::optional<at::ScalarType> border = {});

// In training, if the context requests it: adds noise to the result of `embedding` for layer `layer`, uniform between
// plus and minus embedding_noise / sqrt(length of the row's segment x hidden), as in NEFTune. On every device, a number
// depends only on the seed, the step, the sample, the row's place in it and the feature.
void add_embedding_noise(const TensorParallel& tp, const MicrobatchContext& context, int64_t layer, at::Tensor rows);

}  // namespace shardline
