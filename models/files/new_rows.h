// Rows for words that a model has in addition to those in its files, because its tokenizer has more tokens.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "models/files/hf_directory.h"

namespace shardline {

// Sets the rows of `value` [param.local_shape(t, t_degree)] that the files do not have, after HfDirectory::read has set
// the others. As in transformers' resize_token_embeddings by default, they are drawn from the normal distribution with
// the mean of the rows in the file and 1e-9 times their covariance. `number` is the parameter's index in the model. A
// row depends only on the file, the seed, the number and the word, so it is the same in every layout. The file is read
// twice, and each new row costs as many operations as the file has elements. `filled` is called with numbers of bytes
// of `value`.
void draw_new_rows(const HfDirectory& files, const ParamSpec& param, const std::string& full_name, uint32_t number,
                   uint64_t seed, int t, int t_degree, at::Tensor value,
                   const std::function<void(int64_t bytes)>& filled = {});

}  // namespace shardline
