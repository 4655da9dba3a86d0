#include "optim/update/tensor_runs.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {

TensorRuns::TensorRuns(const TensorFactors& tensor, const TrainedPiece& piece, int t, int t_degree) : piece_(piece) {
  const ParamSpec& spec = *piece.spec;
  const auto shape = spec.local_shape(t, t_degree);
  for (int d = 0; d < std::ssize(shape); ++d) {
    // The start of the local parameter, relative to that of the tensor.
    const bool split = spec.split_dim == d;
    const int64_t shift = (split ? spec.split(t, t_degree).begin : 0) - tensor.begin[d];
    row_ += shift * tensor.row_step[d];
    column_ += shift * tensor.column_step[d];
    const int64_t begin = std::clamp<int64_t>(-shift, 0, shape[d]);
    const int64_t end = std::clamp<int64_t>(tensor.length[d] - shift, begin, shape[d]);
    const Dim dim{shape[d], begin, end, tensor.row_step[d], tensor.column_step[d]};
    if (!dims_.empty() && joins(dims_.back(), dim)) {
      const Dim outer = dims_.back();
      dims_.back() = {outer.size * dim.size, outer.begin * dim.size, outer.end * dim.size, dim.row_step,
                      dim.column_step};
    } else {
      dims_.push_back(dim);
    }
  }
  if (dims_.empty()) dims_.push_back({1, 0, 1, 0, 0});
  SL_ASSERT(row_step() == 0 || column_step() == 0, spec.name, ": its last dimension goes from matrix to matrix");
  const int64_t length = dims_.back().size;
  first_ = piece.offset / length;
  count_ = (piece.offset + piece.length + length - 1) / length - first_;
}

bool TensorRuns::joins(const Dim& outer, const Dim& inner) const {
  if (inner.begin != 0 || inner.end != inner.size) return false;
  return outer.size == 1 ||
         (outer.row_step == inner.row_step * inner.size && outer.column_step == inner.column_step * inner.size);
}

TensorRuns::Run TensorRuns::operator[](int64_t index) const {
  const Dim& last = dims_.back();
  const int64_t start = (first_ + index) * last.size;  // in the flat local parameter
  const int64_t begin = std::max(start + last.begin, piece_.offset);
  const int64_t end = std::min(start + last.end, piece_.offset + piece_.length);
  if (begin >= end) return {};
  Run run{.begin = piece_.begin + begin - piece_.offset,
          .length = end - begin,
          .row = row_ + (begin - start) * last.row_step,
          .column = column_ + (begin - start) * last.column_step};
  int64_t rest = first_ + index;
  for (size_t d = dims_.size() - 1; d-- > 0;) {
    const int64_t place = rest % dims_[d].size;
    if (place < dims_[d].begin || place >= dims_[d].end) return {};
    run.row += place * dims_[d].row_step;
    run.column += place * dims_[d].column_step;
    rest /= dims_[d].size;
  }
  return run;
}

int64_t TensorRuns::elements() const {
  int64_t elements = 0;
  for (int64_t i = 0; i < count_; ++i) elements += (*this)[i].length;
  return elements;
}

}  // namespace shardline
