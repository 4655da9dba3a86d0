#include "models/program/layers/row_calls.h"

#include <ATen/core/grad_mode.h>

#include "models/program/layers/part_run.h"
#include "tensor_parallel/ops/rank_sums.h"

namespace shardline {
namespace {

std::vector<int64_t> joined(std::vector<int64_t> first, c10::IntArrayRef rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

// Converts between a program's tensors and [rows, features]; `leading`: how many leading dimensions count rows.
class RowForms {
 public:
  explicit RowForms(const ProgramBatch& batch) : batch_(batch) {}

  int64_t tokens() const { return batch_.batch.tokens(); }

  static at::Tensor flat_rows(const at::Tensor& x, int64_t leading) {
    return x.reshape({leading == 1 ? x.size(0) : x.size(0) * x.size(1), -1});
  }
  // rows: those of one rank, with the features of `like`.
  static at::Tensor rows_like(const at::Tensor& rows, const at::Tensor& like, int64_t leading) {
    const auto first = leading == 1 ? std::vector<int64_t>{rows.size(0)} : std::vector<int64_t>{1, rows.size(0)};
    return rows.view(joined(first, like.sizes().slice(leading)));
  }
  // whole: [batch, length, ...] or [batch * length, ...] -> [tokens, features]
  at::Tensor flat_tokens(const at::Tensor& whole, int64_t leading) const {
    const auto rest = whole.sizes().slice(leading);
    return batch_.source.gathered(whole.reshape(joined(grid(2), rest))).flatten(1);
  }
  // The inverse; features: as in `like`.
  at::Tensor whole_like(const at::Tensor& tokens, const at::Tensor& like, int64_t leading) const {
    return batch_.source.spread(tokens).reshape(joined(grid(leading), like.sizes().slice(leading)));
  }
  // Gives a broadcast tensor all its rows.
  at::Tensor expanded(at::Tensor x, int64_t leading, int64_t dimensions) const {
    while (x.dim() < dimensions) x = x.unsqueeze(0);
    return x.expand(joined(grid(leading), x.sizes().slice(leading)));
  }

 private:
  std::vector<int64_t> grid(int64_t leading) const {
    const RowGrid& of = batch_.source;
    if (leading == 1) return {of.samples() * of.length()};
    return {of.samples(), of.length()};
  }

  const ProgramBatch& batch_;
};

}  // namespace

OwnCalls calls_over(const TensorParallel& tp) {
  const TensorParallel by_rows{tp.comm, true};
  using Stack = torch::jit::Stack;
  return {{kEnterRanks, [tp](const Stack& given, const ProgramBatch&) { return enter_ranks(tp, given[0].toTensor()); }},
          {kAddOverRanks,
           [tp](const Stack& given, const ProgramBatch&) { return add_over_ranks(tp, given[0].toTensor()); }},
          {kLeaveRanks, [tp](const Stack& given, const ProgramBatch&) { return leave_ranks(tp, given[0].toTensor()); }},
          {kGatherColumns,
           [tp](const Stack& given, const ProgramBatch&) {
             const at::Tensor& part = given[0].toTensor();
             const DividedDimension of{.dimension = int(given[1].toInt()),
                                       .before = given[2].toInt(),
                                       .count = given[3].toInt(),
                                       .after = given[4].toInt(),
                                       .sections = {}};
             return gathered_dimension(tp, part, of.dimension, of.size(), own_places(tp, of, part));
           }},
          {kEnterFromRows,
           [by_rows](const Stack& given, const ProgramBatch& batch) {
             const RowForms forms(batch);
             const at::Tensor& rows = given[0].toTensor();
             const int64_t leading = given[1].toInt();
             return forms.whole_like(enter_from_rows(by_rows, forms.flat_rows(rows, leading), forms.tokens()), rows,
                                     leading);
           }},
          {kGatherRows,
           [by_rows](const Stack& given, const ProgramBatch& batch) {
             const RowForms forms(batch);
             const at::Tensor& rows = given[0].toTensor();
             const int64_t leading = given[1].toInt();
             return forms.whole_like(gathered_for_all(by_rows, forms.flat_rows(rows, leading), forms.tokens()), rows,
                                     leading);
           }},
          {kAddToRows,
           [by_rows](const Stack& given, const ProgramBatch& batch) {
             const RowForms forms(batch);
             const at::Tensor& partial = given[0].toTensor();
             const int64_t leading = given[1].toInt();
             return forms.rows_like(add_to_rows(by_rows, forms.flat_tokens(partial, leading)), partial, leading);
           }},
          {kSliceRows, [by_rows](const Stack& given, const ProgramBatch& batch) {
             const RowForms forms(batch);
             const int64_t leading = given[1].toInt();
             const at::Tensor whole = forms.expanded(given[0].toTensor(), leading, given[2].toInt());
             const at::Tensor tokens = forms.flat_tokens(whole, leading);  // of a mask, for example
             const at::Tensor rows =
                 tokens.requires_grad() ? sliced_from_all(by_rows, tokens) : slice_rows(by_rows, tokens);
             return forms.rows_like(rows, whole, leading);
           }}};
}

}  // namespace shardline
