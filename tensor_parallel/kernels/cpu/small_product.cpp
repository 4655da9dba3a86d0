#include "tensor_parallel/kernels/cpu/small_product.h"

#include "tensor_parallel/kernels/vector_kernel_math.h"

namespace shardline {
namespace {

// Computes `kRows` rows of c, from row `first` on; their sums stay in registers.
template <int kRows, class T>
SHARDLINE_INLINE void multiply_rows(const SmallProduct<T>& p, int64_t first) {
  const T* a = p.a + first * p.a_row;
  for (int64_t column = 0; column < p.n; column += kProductLanes) {
    T sums[kRows][kProductLanes] = {};
    for (int64_t i = 0; i < p.k; ++i) {
      const T* b = p.b + i * p.b_row + column;
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const T factor = a[row * p.a_row + i * p.a_column];
#pragma omp simd
        for (int64_t lane = 0; lane < kProductLanes; ++lane) sums[row][lane] += factor * b[lane];
      }
    }
    for (int row = 0; row < kRows; ++row) {
      T* c = p.c + (first + row) * p.c_row + column;
      for (int64_t lane = 0; lane < kProductLanes; ++lane) c[lane] = sums[row][lane];
    }
  }
}

template <class T>
SHARDLINE_INLINE void multiply_all(const SmallProduct<T>& p) {
  int64_t row = 0;
  for (; p.m - row >= 8; row += 8) multiply_rows<8>(p, row);
  if (p.m - row >= 4) {
    multiply_rows<4>(p, row);
    row += 4;
  }
  if (p.m - row >= 2) {
    multiply_rows<2>(p, row);
    row += 2;
  }
  if (p.m > row) multiply_rows<1>(p, row);
}

}  // namespace

SHARDLINE_VECTORISED void multiply_small(const SmallProduct<float>& product) {
  multiply_all(product);
}
SHARDLINE_VECTORISED void multiply_small(const SmallProduct<double>& product) {
  multiply_all(product);
}

}  // namespace shardline
