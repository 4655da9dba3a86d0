#include "tensor_parallel/row_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "tensor_parallel/vector_kernel_math.h"

namespace shardline {
namespace {

constexpr int64_t kNumbersPerThread = 32768, kMostBlocks = 64, kLeastBlockRows = 16;

template <class T>
SHARDLINE_INLINE void add_rows_to(T* total, const T* x, int64_t rows, int64_t stride, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4, x += 4 * stride) {
    const T *b = x + stride, *c = b + stride, *d = c + stride;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) total[j] += (x[j] + b[j]) + (c[j] + d[j]);
  }
  for (; i < rows; ++i, x += stride) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) total[j] += x[j];
  }
}
SHARDLINE_VECTORISED void add_rows(float* total, const float* x, int64_t rows, int64_t stride, int64_t n) {
  add_rows_to(total, x, rows, stride, n);
}
SHARDLINE_VECTORISED void add_rows(double* total, const double* x, int64_t rows, int64_t stride, int64_t n) {
  add_rows_to(total, x, rows, stride, n);
}

}  // namespace

int64_t rows_per_thread(int64_t n) {
  return std::max<int64_t>(1, kNumbersPerThread / std::max<int64_t>(1, n));
}

RowBlocks::RowBlocks(int64_t row_count)
    : rows(row_count),
      block_rows(std::max(kLeastBlockRows, (row_count + kMostBlocks - 1) / kMostBlocks)),
      count((row_count + block_rows - 1) / block_rows) {}

void add_partial_sums(at::Tensor total, const at::Tensor& partial) {
  const int64_t blocks = partial.size(0), n = partial.size(1);
  SL_ASSERT(total.numel() == n && total.scalar_type() == partial.scalar_type(), "sums of ", n, " columns as ",
            partial.scalar_type(), " go to a tensor of ", total.sizes(), " ", total.scalar_type());
  const at::Tensor sum = at::zeros({n}, partial.options());
  with_type_of(partial, [&]<class T>(T) {
    at::parallel_for(0, n, 4 * rows_per_thread(blocks), [&](int64_t begin, int64_t end) {
      add_rows(numbers<T>(sum) + begin, constant_numbers<T>(partial) + begin, blocks, n, end - begin);
      add_rows(numbers<T>(total) + begin, constant_numbers<T>(sum) + begin, 1, n, end - begin);
    });
  });
}

void add_row_sums(at::Tensor total, const at::Tensor& x) {
  const RowBlocks blocks(x.size(0));
  const int64_t n = x.size(1);
  if (blocks.rows == 0 || n == 0) return;
  SL_ASSERT(x.stride(1) == 1, "rows are contiguous; strides ", x.strides());
  const at::Tensor partial = at::zeros({blocks.count, n}, x.options());
  with_type_of(x, [&]<class T>(T) {
    const T* from = x.const_data_ptr<T>();
    T* to = numbers<T>(partial);
    at::parallel_for(0, blocks.count, blocks.per_thread(n), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b)
        add_rows(to + b * n, from + blocks.begin(b) * x.stride(0), blocks.end(b) - blocks.begin(b), x.stride(0), n);
    });
  });
  add_partial_sums(total, partial);
}

}  // namespace shardline
