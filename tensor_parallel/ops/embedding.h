// Token embedding, and those of positions and token types where a model has tables of them; the vocabulary is split
// over the T ranks, or whole on each.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// A table whose rows are added to the words: that of each row's position, counted from entry `first`, or of its type.
struct AddedTable {
  enum class By { position, type };
  Parameter* table = nullptr;  // [entries, hidden]
  By by = By::position;
  int64_t first = 0;
};

// Ids are within the whole vocabulary; the maker of the batch checks this (engine/data/dataset/batch_source.h). words
// [vocabulary of this rank, hidden] (its entries start at first_word). Returns border rows [rows, hidden] of type
// `border`: the words' own unless said otherwise (fp32 between half-precision layers: fp32_residual_addition).
// Gradients are added in the order of the tokens. Where the words' spec splits nothing, first_word is 0 and each rank
// looks its own rows' words up: the words' gradient is then that of these rows.
at::Tensor embedding(const TensorParallel& tp, const Microbatch& batch, Parameter& words, int64_t first_word,
                     const std::vector<AddedTable>& added, std::optional<at::ScalarType> border = {});

// In training, if the context asks for it: adds noise to what `embedding` has returned for layer `layer`, uniform
// between plus and minus embedding_noise / sqrt(length of the row's segment x hidden), as NEFTune does. A number
// depends on the seed, the step, the sample, the row's place in it and the feature alone, on every device.
void add_embedding_noise(const TensorParallel& tp, const MicrobatchContext& context, int64_t layer, at::Tensor rows);

}  // namespace shardline
