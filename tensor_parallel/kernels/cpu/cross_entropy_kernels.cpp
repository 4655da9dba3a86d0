#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <limits>

#include "core/model/announced_op.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

constexpr int64_t kChunk = 2048;  // logits that stay in the L1 cache between finding the maximum and summing

template <class T>
struct Stats {
  T largest, sum;
};

// One pass over memory: the sum is scaled down whenever a chunk has a larger logit.
template <class S>
SHARDLINE_INLINE Stats<Wide<S>> stats_of_row(const S* row, int64_t v) {
  using T = Wide<S>;
  T largest = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t first = 0; first < v; first += kChunk) {
    const int64_t count = std::min(kChunk, v - first);
    const S* x = row + first;
    T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < count; ++i) most = widen(x[i]) > most ? widen(x[i]) : most;
    if (most > largest) {
      sum *= exponential(largest - most);
      largest = most;
    }
    const T shift = largest == -std::numeric_limits<T>::infinity() ? T(0) : largest;
    sum += ordered_sum<T>(count, [=](int64_t i) SHARDLINE_INLINED { return exponential(widen(x[i]) - shift); });
  }
  return {largest, sum};
}

// label: -1 if it is not in the row
template <class S>
SHARDLINE_INLINE void gradient_of_row(S* row, int64_t v, int64_t label, Wide<S> log_sum_exp, Wide<S> scale) {
  const Wide<S> target = label >= 0 ? widen(row[label]) : 0;
#pragma omp simd
  for (int64_t i = 0; i < v; ++i) row[i] = narrow<S>(exponential(widen(row[i]) - log_sum_exp) * scale);
  if (label >= 0) row[label] = narrow<S>((exponential(target - log_sum_exp) - 1) * scale);
}

#define DEFINE_CROSS_ENTROPY(S)                                                                                  \
  SHARDLINE_VECTORISED Stats<Wide<S>> row_stats(const S* row, int64_t v) {                                       \
    return stats_of_row(row, v);                                                                                 \
  }                                                                                                              \
  SHARDLINE_VECTORISED void row_gradient(S* row, int64_t v, int64_t label, Wide<S> log_sum_exp, Wide<S> scale) { \
    gradient_of_row(row, v, label, log_sum_exp, scale);                                                          \
  }
SHARDLINE_FOR_TYPES(DEFINE_CROSS_ENTROPY)

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label) {
  SL_ANNOUNCE_OP("shardline::cross_entropy_stats", logits);
  if (!runs_loops(logits)) return kernels_for(logits).cross_entropy_stats(logits, label);
  const int64_t rows = logits.size(0), v = logits.size(1);
  const at::Tensor largest = at::empty({rows}, logits.options().dtype(wide_type(logits))),
                   sum = at::empty_like(largest), picked = at::empty_like(largest);
  with_type_of(logits, [&]<class S>(S) {
    using T = Wide<S>;
    const S* x = constant_numbers<S>(logits);
    const int64_t* labels = constant_numbers<int64_t>(label);
    T *m = numbers<T>(largest), *s = numbers<T>(sum), *p = numbers<T>(picked);
    at::parallel_for(0, rows, rows_per_thread(v), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Stats<T> stats = row_stats(x + row * v, v);
        m[row] = stats.largest;
        s[row] = stats.sum;
        p[row] = labels[row] >= 0 && labels[row] < v ? widen(x[row * v + labels[row]]) : T(0);
      }
    });
  });
  return {largest, sum, picked};
}

void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale) {
  SL_ANNOUNCE_OP("shardline::cross_entropy_gradient", logits);
  if (!runs_loops(logits)) return kernels_for(logits).cross_entropy_gradient_(logits, label, log_sum_exp, scale);
  const int64_t rows = logits.size(0), v = logits.size(1);
  with_type_of(logits, [&]<class S>(S) {
    using T = Wide<S>;
    S* x = numbers<S>(logits);
    const int64_t* labels = constant_numbers<int64_t>(label);
    const T *lse = constant_numbers<T>(log_sum_exp), *factor = constant_numbers<T>(scale);
    at::parallel_for(0, rows, rows_per_thread(v), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (factor[row] == 0)
          std::fill_n(x + row * v, v, S{});
        else
          row_gradient(x + row * v, v, labels[row] < v ? labels[row] : -1, lse[row], factor[row]);
      }
    });
  });
}

}  // namespace shardline
