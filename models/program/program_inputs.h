// What a program takes instead of a microbatch's rows: rectangles [segments, length].
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "models/program/program.h"
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

// Segments, or the sources or targets in them, as the rows of a rectangle, padded on the right where they are shorter
// than the longest one.
class RowGrid {
 public:
  enum class Part { all, source, target };
  RowGrid(const Microbatch& batch, Part part);

  int64_t segments() const { return segments_; }
  int64_t length() const { return length_; }
  bool is_padded() const { return places_.defined(); }

  // [rows of the microbatch, ...] -> [segments, length, ...], with zeros, or `padding`, where there is no row.
  at::Tensor spread(const at::Tensor& rows, int64_t padding = 0) const;
  // [segments, length, ...] -> [rows of the part, ...]
  at::Tensor gathered(const at::Tensor& grid) const;
  // Likewise, but to all rows of the microbatch. others: their values where the part has no row; undefined: zeros.
  at::Tensor among_rows(const at::Tensor& grid, const at::Tensor& others) const;
  at::Tensor padding() const;  // bool [segments, length]: where there is no row

 private:
  int64_t segments_, length_ = 0, all_rows_;
  at::Tensor rows_;    // of the part in the microbatch; undefined: all
  at::Tensor places_;  // of each row of the part in the grid; undefined where every place has its row
};

// A microbatch as a program sees it. In a program without a target, `target` is not used.
struct ProgramBatch {
  ProgramBatch(const Program& program, const Microbatch& batch);

  bool is_padded() const { return source.is_padded() || (program.has_target() && target.is_padded()); }
  const RowGrid& grid_of(int value) const { return program.is_of_target(value) ? target : source; }

  const Program& program;
  const Microbatch& batch;
  RowGrid source, target;
};

// Whether arguments are given columns of the data with tensors, and not token ids: if model.inputs has a name that no
// microbatch of tokens has.
bool has_columns(const ProgramUse& use);

// Whether a microbatch has this for the program: input_ids, attention_mask, position_ids, token_type_ids or columns,
// and by what the program predicts labels, start_positions, end_positions, decoder_input_ids, decoder_attention_mask.
bool is_given(const std::string& given, const ProgramUse& use);
bool is_column(const std::string& given, const ProgramUse& use);
std::string given_names(const ProgramUse& use);  // without columns

// The value of an argument: of rows [segments, length], int64; of a column [segments, ...], in the argument's type,
// with `floating` for float; labels of a causal model are those of the tokens themselves. Throws a RunError where
// `batch` has no labels.
at::Tensor program_argument(const GraphInput& input, const ProgramBatch& batch, at::ScalarType floating = at::kFloat);

// Samples of one length, ids [samples, length], whose labels are the ids, or classes or numbers that are 0. With a
// target, its last tokens are this. Columns are 0.
Microbatch sample_batch(const Program& program, const at::Tensor& ids, int64_t target_length);
// The same with sources of this length, unless the program determines it, and ids of this value. target: only used in
// programs with one.
Microbatch sample_batch(const Program& program, int64_t samples, int64_t source, int64_t target, int64_t id);

// Zeros for the columns of so many samples.
std::map<std::string, at::Tensor> zero_columns(const Program& program, int64_t samples);

// The labels or targets that count, as the data counts them, a scalar.
at::Tensor weight_of(const Microbatch& batch, const ProgramUse& use);

// The rows of the grid for dropout: their samples and places.
DropoutRows grid_rows(DropoutRows rows, const RowGrid& grid);

// Drops elements of x [segments, heads, length of `queries`, length of `keys`] and scales the others. An element is
// dropped by the seed, op, step and probability of `rows` and by its sample, head and pair of places in the sample.
// heads: the numbers of the heads that x has; all of them where it is undefined.
at::Tensor dropped_pairs(const at::Tensor& x, const DropoutRows& rows, const Microbatch& batch, const RowGrid& queries,
                         const RowGrid& keys, const at::Tensor& heads = {});

// Drops elements of x [..., features] with a row for each of `rows`, which has these features (int64) of `all`, as
// bias_dropout_add does with all of them.
at::Tensor dropped_features(const at::Tensor& x, const DropoutRows& rows, const at::Tensor& features, int64_t all);

}  // namespace shardline
