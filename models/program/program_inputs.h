// What a program takes instead of a microbatch's rows: rectangles [segments, length].
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "core/model/microbatch.h"
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

// Segments as the rows of a rectangle, padded on the right where they are shorter than the longest one.
class RowGrid {
 public:
  explicit RowGrid(const Microbatch& batch);

  int64_t segments() const { return segments_; }
  int64_t length() const { return length_; }
  bool is_padded() const { return places_.defined(); }

  // [rows, ...] -> [segments, length, ...], with zeros, or `padding`, where there is no row.
  at::Tensor spread(const at::Tensor& rows, int64_t padding = 0) const;
  // [segments, length, ...] -> [rows, ...]
  at::Tensor gathered(const at::Tensor& grid) const;

 private:
  int64_t segments_, length_;
  at::Tensor places_;  // [rows] of each row in the grid; undefined where every place has its row
};

// The value of an argument of the program by its name: input_ids, labels, attention_mask, position_ids or
// token_type_ids, all [segments, length] int64, labels of the tokens themselves and not of the next ones. Throws a
// RunError for others, and where `batch` has no labels.
at::Tensor program_argument(const std::string& name, const Microbatch& batch, const RowGrid& grid);
bool is_program_argument(const std::string& name);

// The rows of the grid for dropout: their samples and places.
DropoutRows grid_rows(DropoutRows rows, const RowGrid& grid);

// Drops elements of x [segments, heads, length, length] and scales the others. An element is dropped by the seed, op,
// step and probability of `rows` and by its sample, head and pair of places in the sample. heads: the numbers of the
// heads that x has; all of them where it is undefined.
at::Tensor dropped_pairs(const at::Tensor& x, const DropoutRows& rows, const Microbatch& batch,
                         const at::Tensor& heads = {});

// Drops elements of x [segments, length, features], which has these features (int64) of `all`, as bias_dropout_add does
// with all of them. rows: of the grid.
at::Tensor dropped_features(const at::Tensor& x, const DropoutRows& rows, const at::Tensor& features, int64_t all);

}  // namespace shardline
