#include "core/memory/transposing_copy.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/memory/tensor_data.h"

namespace shardline {
namespace {

constexpr int64_t kSquare = 16;      // one or two cache lines wide
constexpr int64_t kGrain = 1 << 15;  // elements for which a thread is worth its start

// The dimension whose elements are next to each other in memory, if squares fit into it; -1: none.
int64_t contiguous_dim(const at::Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.stride(d) == 1 && tensor.size(d) >= kSquare) return d;
  return -1;
}

// Row r and column c are at to[r * to_stride + c] and at from[c * from_stride + r].
template <class T>
void transpose_square(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  T square[kSquare][kSquare];
  for (int64_t c = 0; c < kSquare; ++c)
    for (int64_t r = 0; r < kSquare; ++r) square[r][c] = from[c * from_stride + r];
  for (int64_t r = 0; r < kSquare; ++r) std::copy_n(square[r], kSquare, to + r * to_stride);
}

// Calls see(begin) for squares that cover a range of at least one. The last one may overlap that before it.
template <class See>
void for_squares(int64_t begin, int64_t end, const See& see) {
  for (int64_t at = begin; at < end - kSquare; at += kSquare) see(at);
  see(end - kSquare);
}

// row_dim: contiguous in `from`. column_dim: contiguous in `to`.
template <class T>
void copy_squares(const at::Tensor& to, const at::Tensor& from, int64_t row_dim, int64_t column_dim) {
  const int64_t rows = to.size(row_dim), columns = to.size(column_dim), strips = columns / kSquare;
  const int64_t from_stride = from.stride(column_dim), to_stride = to.stride(row_dim);
  const int64_t matrices = to.numel() / (rows * columns);  // in the other dimensions
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* source = data_of<T>(from);
      T* target = mutable_data_of<T>(to);
      int64_t matrix = i / strips;
      for (int64_t d = to.dim(); d-- > 0;) {
        if (d == row_dim || d == column_dim) continue;
        source += matrix % to.size(d) * from.stride(d);
        target += matrix % to.size(d) * to.stride(d);
        matrix /= to.size(d);
      }
      const int64_t strip = i % strips, first = strip * kSquare;
      for_squares(first, strip + 1 == strips ? columns : first + kSquare, [&](int64_t column) {
        for_squares(0, rows, [&](int64_t row) {
          transpose_square(source + column * from_stride + row, from_stride, target + row * to_stride + column,
                           to_stride);
        });
      });
    }
  };
  at::parallel_for(0, matrices * strips, std::max<int64_t>(kGrain / (rows * kSquare), 1), copy);
}

}  // namespace

void copy_transposing(const at::Tensor& to, const at::Tensor& from) {
  const int64_t row_dim = contiguous_dim(from), column_dim = contiguous_dim(to);
  const bool transposes = row_dim >= 0 && column_dim >= 0 && row_dim != column_dim && from.sizes() == to.sizes() &&
                          from.is_cpu() && to.is_cpu() && from.scalar_type() == to.scalar_type();
  if (transposes && to.scalar_type() == at::kFloat)
    copy_squares<float>(to, from, row_dim, column_dim);
  else if (transposes && to.scalar_type() == at::kDouble)
    copy_squares<double>(to, from, row_dim, column_dim);
  else
    to.copy_(from);
}

}  // namespace shardline
