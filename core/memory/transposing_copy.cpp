#include "core/memory/transposing_copy.h"

#include <ATen/Parallel.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/memory/tensor_data.h"

namespace shardline {
namespace {

constexpr int64_t kSquare = 16;      // one or two cache lines wide
constexpr int64_t kLine = 64;        // bytes of a cache line
constexpr int64_t kGrain = 1 << 15;  // elements for which a further thread is worthwhile

// Views of both tensors in which adjacent dimensions are merged where both allow it.
std::pair<at::Tensor, at::Tensor> with_merged_dims(const at::Tensor& to, const at::Tensor& from) {
  std::vector<int64_t> sizes, to_strides, from_strides;
  for (int64_t d = 0; d < to.dim(); ++d) {
    const int64_t size = to.size(d), to_stride = to.stride(d), from_stride = from.stride(d);
    if (!sizes.empty() && to_strides.back() == to_stride * size && from_strides.back() == from_stride * size) {
      sizes.back() *= size;
      to_strides.back() = to_stride;
      from_strides.back() = from_stride;
    } else {
      sizes.push_back(size);
      to_strides.push_back(to_stride);
      from_strides.push_back(from_stride);
    }
  }
  return {to.as_strided(sizes, to_strides), from.as_strided(sizes, from_strides)};
}

// The dimension whose elements are contiguous in memory, if squares fit into it; -1: none.
int64_t contiguous_dim(const at::Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.stride(d) == 1 && tensor.size(d) >= kSquare) return d;
  return -1;
}

// Writes one row of a square, which is aligned and fills whole cache lines, without reading these lines first.
template <class T>
void stream_row(const T* row, T* to) {
#ifdef __SSE2__
  constexpr int64_t kPart = 16 / sizeof(T);
  for (int64_t i = 0; i < kSquare; i += kPart)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(row + i)));
#else
  std::copy_n(row, kSquare, to);
#endif
}

// After this call, other threads see what stream_row() has stored.
void finish_streams() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// Row r and column c are at to[r * to_stride + c] and at from[c * from_stride + r].
template <class T>
void transpose_square(const T* from, int64_t from_stride, T* to, int64_t to_stride, bool streams) {
  alignas(kLine) T square[kSquare][kSquare];
  for (int64_t c = 0; c < kSquare; ++c)
    for (int64_t r = 0; r < kSquare; ++r) square[r][c] = from[c * from_stride + r];
  if (streams)
    for (int64_t r = 0; r < kSquare; ++r) stream_row(square[r], to + r * to_stride);
  else
    for (int64_t r = 0; r < kSquare; ++r) std::copy_n(square[r], kSquare, to + r * to_stride);
}

// How squares cover the columns of a matrix in `to`: from column `first` on, squares begin at cache lines in every row
// and can be streamed. At both ends, squares may overlap these.
struct Strips {
  template <class T>
  Strips(const T* to, int64_t stride, int64_t all_columns) : columns(all_columns) {
    const auto address = reinterpret_cast<uintptr_t>(to);
    const auto to_line = static_cast<int64_t>((kLine - address % kLine) % kLine / sizeof(T));
    streams = address % sizeof(T) == 0 && stride * sizeof(T) % kLine == 0 && columns >= to_line + kSquare;
    first = streams ? to_line : 0;
    count = (columns - first) / kSquare;
  }
  // Calls see(column, streams) for the square that begins strip `i`, and at both ends also for the columns that no
  // strip covers.
  template <class See>
  void visit(int64_t i, const See& see) const {
    if (i == 0 && first > 0) see(0, false);
    see(first + i * kSquare, streams);
    if (i + 1 == count && first + count * kSquare < columns) see(columns - kSquare, false);
  }
  int64_t columns, first, count;
  bool streams;
};

// Calls see(begin) for squares that cover [0, end). The last one may overlap the previous one.
template <class See>
void for_squares(int64_t end, const See& see) {
  for (int64_t at = 0; at < end - kSquare; at += kSquare) see(at);
  see(end - kSquare);
}

// row_dim: contiguous in `from`. column_dim: contiguous in `to`.
template <class T>
void copy_squares(const at::Tensor& to, const at::Tensor& from, int64_t row_dim, int64_t column_dim) {
  const int64_t rows = to.size(row_dim), columns = to.size(column_dim), most_strips = columns / kSquare;
  const int64_t from_stride = from.stride(column_dim), to_stride = to.stride(row_dim);
  const int64_t matrices = to.numel() / (rows * columns);  // in the other dimensions
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* source = data_of<T>(from);
      T* target = mutable_data_of<T>(to);
      int64_t matrix = i / most_strips;
      for (int64_t d = to.dim(); d-- > 0;) {
        if (d == row_dim || d == column_dim) continue;
        source += matrix % to.size(d) * from.stride(d);
        target += matrix % to.size(d) * to.stride(d);
        matrix /= to.size(d);
      }
      const Strips strips(target, to_stride, columns);
      if (i % most_strips >= strips.count) continue;
      strips.visit(i % most_strips, [&](int64_t column, bool streams) {
        for_squares(rows, [&](int64_t row) {
          transpose_square(source + column * from_stride + row, from_stride, target + row * to_stride + column,
                           to_stride, streams);
        });
      });
    }
    finish_streams();
  };
  at::parallel_for(0, matrices * most_strips, std::max<int64_t>(kGrain / (rows * kSquare), 1), copy);
}

}  // namespace

void copy_transposing(const at::Tensor& to, const at::Tensor& from) {
  if (from.sizes() != to.sizes() || !from.is_cpu() || !to.is_cpu() || from.scalar_type() != to.scalar_type()) {
    to.copy_(from);
    return;
  }
  const auto [target, source] = with_merged_dims(to, from);
  const int64_t row_dim = contiguous_dim(source), column_dim = contiguous_dim(target);
  const bool transposes = row_dim >= 0 && column_dim >= 0 && row_dim != column_dim;
  if (transposes && to.scalar_type() == at::kFloat)
    copy_squares<float>(target, source, row_dim, column_dim);
  else if (transposes && to.scalar_type() == at::kDouble)
    copy_squares<double>(target, source, row_dim, column_dim);
  else
    to.copy_(from);
}

}  // namespace shardline
