// What a program takes in place of a microbatch's rows: rectangles [segments, length].
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "models/program/program.h"
#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

// Segments, or the sources or targets in them, as the rows of a rectangle. Those shorter than its length are padded on
// the right. If there are fewer segments than a fixed number of samples, the first one is repeated: unlike padding, it
// is something that the program can compute with.
class RowGrid {
 public:
  enum class Part { all, source, target };
  // samples, length: of a rectangle of a fixed size, into which the microbatch must fit; 0: those of the microbatch
  RowGrid(const Microbatch& batch, Part part, int64_t samples = 0, int64_t length = 0);

  int64_t samples() const { return samples_; }  // with repeated ones
  int64_t segments() const { return segments_; }
  int64_t length() const { return length_; }
  int64_t longest() const { return longest_; }  // the length of the longest segment
  bool is_padded() const { return is_padded_; }
  bool has_repeated() const { return samples_ > segments_; }

  // [rows of the microbatch, ...] -> [samples, length, ...], where padding is filled with zeros, or with `padding`.
  at::Tensor spread(const at::Tensor& rows, int64_t padding = 0) const;
  // The same with `padding` in repeated samples, too: for labels, which count once.
  at::Tensor spread_once(const at::Tensor& rows, int64_t padding) const;
  // [segments, ...] -> [samples, ...]
  at::Tensor with_repeated(const at::Tensor& of_segments) const;
  // [samples, length, ...] -> [rows of the part, ...]
  at::Tensor gathered(const at::Tensor& grid) const;
  // Likewise, but to all rows of the microbatch. others: the values of rows outside the part; undefined: zeros.
  at::Tensor among_rows(const at::Tensor& grid, const at::Tensor& others) const;
  at::Tensor padding() const;  // bool [samples, length]: true for padding

 private:
  at::Tensor placed(const at::Tensor& rows, const at::Tensor& places, int64_t padding) const;

  int64_t segments_, samples_, length_, longest_ = 0, all_rows_;
  bool is_padded_ = false;
  at::Tensor rows_;             // the part's rows in the microbatch; undefined: all
  at::Tensor places_;           // where each row of the part is in the grid; undefined if every place has one
  at::Tensor repeated_;         // the part's rows and those that are repeated after them; undefined: none are
  at::Tensor repeated_places_;  // where these are in the grid
};

// A microbatch in the form that a program takes. `target` is unused in programs without a target. Throws a RunError for
// more samples, or longer ones, than a program of fixed sizes takes.
struct ProgramBatch {
  ProgramBatch(const Program& program, const Microbatch& batch);

  bool is_padded() const { return source.is_padded() || (program.has_target() && target.is_padded()); }
  const RowGrid& grid_of(int value) const { return program.is_of_target(value) ? target : source; }

  const Program& program;
  const Microbatch& batch;
  RowGrid source, target;
};

// How the rows of a microbatch hold a value of samples.
struct HiddenForm {
  int length = 1;          // its dimension that counts tokens; -1: none, so that all rows of a sample have all of it
  bool of_target = false;  // the tokens are those of targets
  int64_t features = 0;    // in a row: the product of the value's other sizes
  int batch = 0;           // its dimension that counts samples
};

// Nothing if the value cannot pass from one layer to the next, or if it is not known whether its sizes count tokens
// that may be padding.
std::optional<HiddenForm> hidden_form(const Program& program, int value);

// A tensor of this form with its samples first and then its tokens, if it counts them; and the inverse.
at::Tensor samples_first(const HiddenForm& form, const at::Tensor& tensor);
at::Tensor in_own_order(const HiddenForm& form, const at::Tensor& tensor);
// The same for a value, [length, batch, ...] -> [batch, length, ...]; if its samples are first, it is not changed.
at::Tensor samples_first(const Program& program, int value, const at::Tensor& tensor);

// Whether arguments are given columns of the data with tensors, and not token ids: if model.inputs has a name that no
// microbatch of tokens has.
bool has_columns(const ProgramUse& use);

// Whether a microbatch can provide this to the program: input_ids, attention_mask, position_ids, token_type_ids or
// columns and, depending on what it predicts, labels, start_positions, end_positions, decoder_input_ids,
// decoder_attention_mask.
bool is_given(const std::string& given, const ProgramUse& use);
bool is_column(const std::string& given, const ProgramUse& use);
std::string given_names(const ProgramUse& use);  // without columns

// Whether an argument is given positions [1, length] or [length], which are the same for all samples.
bool has_common_positions(const Program& program, const GraphInput& argument);
// What the dimensions of an argument count.
std::vector<Counts> counts_of_argument(const Program& program, const GraphInput& argument);

// The value of an argument: for rows [segments, length], int64; for a column [segments, ...], in the argument's type,
// with `floating` for float; labels of a causal model are those of the tokens themselves. Throws a RunError if `batch`
// has no labels.
at::Tensor program_argument(const GraphInput& input, const ProgramBatch& batch, at::ScalarType floating = at::kFloat);

// Samples of one length, ids [samples, length], whose labels are the ids, or classes or numbers that are 0. If there
// are targets, they are the last target_length tokens. Columns are 0.
Microbatch sample_batch(const Program& program, const at::Tensor& ids, int64_t target_length);
// The same with sources of this length, unless the program determines it, and ids of this value. target: only used in
// programs with one.
Microbatch sample_batch(const Program& program, int64_t samples, int64_t source, int64_t target, int64_t id);

// Zeros for the columns of this many samples.
std::map<std::string, at::Tensor> zero_columns(const Program& program, int64_t samples);

// The number of labels or targets, counted as the data counts them, as a scalar.
at::Tensor weight_of(const Microbatch& batch, const ProgramUse& use);

// The rows of the grid for dropout, with their samples and places.
DropoutRows grid_rows(DropoutRows rows, const RowGrid& grid);

// The number of places in a sample that dropped_pairs distinguishes.
inline constexpr int64_t kDroppedPlaces = int64_t{1} << 20;

// Drops elements of x [segments, heads, length of `queries`, length of `keys`] and scales the others. Whether an
// element is dropped depends on the seed, op, step and probability of `rows` and on its sample, head and pair of places
// in the sample. heads: the numbers of the heads in x; undefined: all heads.
at::Tensor dropped_pairs(const at::Tensor& x, const DropoutRows& rows, const Microbatch& batch, const RowGrid& queries,
                         const RowGrid& keys, const at::Tensor& heads = {});

// Drops elements of x [..., features] with a row for each of `rows`, which has only these features (int64) of `all`, as
// bias_dropout_add does for rows with all of them.
at::Tensor dropped_features(const at::Tensor& x, const DropoutRows& rows, const at::Tensor& features, int64_t all);

}  // namespace shardline
