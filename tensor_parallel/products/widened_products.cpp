#include "tensor_parallel/products/widened_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

constexpr int64_t kSide = 1024;  // side of a block: while in cache, its copies are read this many times

template <class S>
SHARDLINE_INLINE void widen_row_of(float* to, const S* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
}

// to = sums + bias (+ to); bias may be null
template <class S>
SHARDLINE_INLINE void narrow_row_of(S* to, const float* sums, const S* bias, bool accumulate, int64_t n) {
  if (accumulate) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = narrow<S>(sums[i] + widen(to[i]));
  } else if (bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = narrow<S>(sums[i] + widen(bias[i]));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = narrow<S>(sums[i]);
  }
}

#define DEFINE_CONVERSIONS(S)                                                                                 \
  SHARDLINE_VECTORISED void widen_row(float* to, const S* from, int64_t n) {                                  \
    widen_row_of(to, from, n);                                                                                \
  }                                                                                                           \
  SHARDLINE_VECTORISED void narrow_row(S* to, const float* sums, const S* bias, bool accumulate, int64_t n) { \
    narrow_row_of(to, sums, bias, accumulate, n);                                                             \
  }
DEFINE_CONVERSIONS(Bf16)
DEFINE_CONVERSIONS(Fp16)

// Calls run(S{}) for a half-precision tensor.
template <class Run>
void with_half_type_of(const at::Tensor& t, const Run& run) {
  SL_ASSERT(t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf, t.scalar_type(),
            " is not half precision");
  if (t.scalar_type() == at::kBFloat16)
    run(Bf16{});
  else
    run(Fp16{});
}

// A thread's memory for one block; it only grows.
class Room {
 public:
  float* of(int64_t count) {
    if (count > count_) {
      numbers_.reset(new float[count]);
      count_ = count;
    }
    return numbers_.get();
  }

 private:
  int64_t count_ = 0;
  std::unique_ptr<float[]> numbers_;
};

at::Tensor in_room(Room& room, int64_t rows, int64_t columns) {
  return at::from_blob(room.of(rows * columns), {rows, columns}, at::TensorOptions().dtype(at::kFloat));
}

// The block in fp32, transposed if the block is.
at::Tensor widened(Room& room, const at::Tensor& block) {
  if (block.stride(1) != 1) return widened(room, block.t()).t();
  const int64_t rows = block.size(0), columns = block.size(1);
  const at::Tensor copy = in_room(room, rows, columns);
  with_half_type_of(block, [&]<class S>(S) {
    const S* from = data_of<S>(block);
    float* to = copy.mutable_data_ptr<float>();
    at::parallel_for(0, rows, rows_per_thread(columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) widen_row(to + row * columns, from + row * block.stride(0), columns);
    });
  });
  return copy;
}

void narrow_into(const at::Tensor& block, const at::Tensor& sums, const at::Tensor& bias, bool accumulate) {
  const int64_t rows = block.size(0), columns = block.size(1);
  with_half_type_of(block, [&]<class S>(S) {
    S* to = mutable_data_of<S>(block);
    const float* from = sums.const_data_ptr<float>();
    const S* added = constant_numbers<S>(bias);
    at::parallel_for(0, rows, rows_per_thread(columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        narrow_row(to + row * block.stride(0), from + row * columns, added, accumulate, columns);
    });
  });
}

at::Tensor block_of(const at::Tensor& t, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  return t.narrow(0, row, rows).narrow(1, column, columns);
}

}  // namespace

void widened_product(at::Tensor c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate,
                     MultiplyFp32 multiply) {
  thread_local Room a_room, b_room, c_room;
  static_assert(3 * kSide * kSide == kWidenedRoom);
  const int64_t m = c.size(0), n = c.size(1), k = a.size(1);
  const bool adds_in_place = c.scalar_type() == at::kFloat;
  at::Tensor wide_a, wide_b;
  for (int64_t row = 0; row < m; row += kSide) {
    const int64_t rows = std::min(kSide, m - row);
    for (int64_t column = 0; column < n; column += kSide) {
      const int64_t columns = std::min(kSide, n - column);
      const at::Tensor block = block_of(c, row, rows, column, columns);
      const at::Tensor sums = adds_in_place ? block : in_room(c_room, rows, columns);
      for (int64_t first = 0; first < k; first += kSide) {
        const int64_t count = std::min(kSide, k - first);
        // The copy is reused if the next block of c needs the same one.
        if (column == 0 || k > kSide) wide_a = widened(a_room, block_of(a, row, rows, first, count));
        if (row == 0 || n > kSide || k > kSide) wide_b = widened(b_room, block_of(b, first, count, column, columns));
        multiply(sums, wide_a, wide_b, first > 0 || (adds_in_place && accumulate));
      }
      if (!adds_in_place) narrow_into(block, sums, bias.defined() ? bias.narrow(0, column, columns) : bias, accumulate);
    }
  }
}

}  // namespace shardline
