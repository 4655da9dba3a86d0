#include <ATen/Parallel.h>

#include "core/model/announced_op.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

// (x + iy) * (cosine + i * sign * sine) for every pair
template <class S>
SHARDLINE_INLINE void turn_pairs(S* x, const Wide<S>* cosine, const Wide<S>* sine, Wide<S> sign, int64_t pairs) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const Wide<S> a = widen(x[2 * i]), b = widen(x[2 * i + 1]), s = sign * sine[i];
    x[2 * i] = narrow<S>(a * cosine[i] - b * s);
    x[2 * i + 1] = narrow<S>(b * cosine[i] + a * s);
  }
}

#define DEFINE_ROTATION(S)                                                                                            \
  SHARDLINE_VECTORISED void turn_heads(S* x, const Wide<S>* cosine, const Wide<S>* sine, Wide<S> sign, int64_t heads, \
                                       int64_t head_dim, int64_t pairs) {                                             \
    for (int64_t head = 0; head < heads; ++head) turn_pairs(x + head * head_dim, cosine, sine, sign, pairs);          \
  }
SHARDLINE_FOR_TYPES(DEFINE_ROTATION)

}  // namespace

void rotate_pairs_(at::Tensor x, const at::Tensor& table, const at::Tensor& position, bool back) {
  SL_ANNOUNCE_OP("shardline::rotate_pairs", x);
  const int64_t rows = x.size(0), heads = x.size(1), head_dim = x.size(2), positions = table.size(1),
                pairs = table.size(2);
  SL_ASSERT(table.size(0) == 2 && 2 * pairs <= head_dim && table.scalar_type() == wide_type(x), "a table of ",
            table.sizes(), " ", table.scalar_type(), " for heads of ", head_dim, " ", x.scalar_type());
  if (!runs_loops(x)) return kernels_for(x).rotate_pairs_(x, table, position, back);
  SL_ASSERT(x.stride(2) == 1 && x.stride(1) == head_dim, "the heads of a row must be contiguous; strides ",
            x.strides());
  with_type_of(x, [&]<class S>(S) {
    using T = Wide<S>;
    S* numbers_of_x = mutable_data_of<S>(x);
    const T* cosine = constant_numbers<T>(table);
    const int64_t* where = constant_numbers<int64_t>(position);
    at::parallel_for(0, rows, rows_per_thread(heads * head_dim), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* row_cosine = cosine + where[row] * pairs;
        turn_heads(numbers_of_x + row * x.stride(0), row_cosine, row_cosine + positions * pairs, back ? T(-1) : T(1),
                   heads, head_dim, pairs);
      }
    });
  });
}

}  // namespace shardline
