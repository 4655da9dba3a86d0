#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <limits>

#include "core/announced_op.h"
#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/kernels.h"
#include "tensor_parallel/row_kernels.h"
#include "tensor_parallel/vector_kernel_math.h"

namespace shardline {
namespace {

constexpr int64_t kChunk = 2048;  // logits that stay in the first cache between the search and the sum

template <class T>
struct Stats {
  T largest, sum;
};

// One pass over memory: the sum is scaled down whenever a chunk brings a larger logit.
template <class T>
SHARDLINE_INLINE Stats<T> stats_of_row(const T* row, int64_t v) {
  T largest = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t first = 0; first < v; first += kChunk) {
    const int64_t count = std::min(kChunk, v - first);
    const T* x = row + first;
    T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < count; ++i) most = x[i] > most ? x[i] : most;
    if (most > largest) {
      sum *= exponential(largest - most);
      largest = most;
    }
    const T shift = largest == -std::numeric_limits<T>::infinity() ? T(0) : largest;
    sum += ordered_sum<T>(count, [=](int64_t i) SHARDLINE_INLINED { return exponential(x[i] - shift); });
  }
  return {largest, sum};
}
SHARDLINE_VECTORISED Stats<float> row_stats(const float* row, int64_t v) {
  return stats_of_row(row, v);
}
SHARDLINE_VECTORISED Stats<double> row_stats(const double* row, int64_t v) {
  return stats_of_row(row, v);
}

template <class T>
SHARDLINE_INLINE void softmax_of_row(T* row, int64_t v, T log_sum_exp, T scale) {
#pragma omp simd
  for (int64_t i = 0; i < v; ++i) row[i] = exponential(row[i] - log_sum_exp) * scale;
}
SHARDLINE_VECTORISED void scaled_softmax(float* row, int64_t v, float log_sum_exp, float scale) {
  softmax_of_row(row, v, log_sum_exp, scale);
}
SHARDLINE_VECTORISED void scaled_softmax(double* row, int64_t v, double log_sum_exp, double scale) {
  softmax_of_row(row, v, log_sum_exp, scale);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label) {
  SL_ANNOUNCE_OP("shardline::cross_entropy_stats", logits);
  if (!runs_loops(logits)) return aten::cross_entropy_stats(logits, label);
  const int64_t rows = logits.size(0), v = logits.size(1);
  const at::Tensor largest = at::empty({rows}, logits.options()), sum = at::empty_like(largest),
                   picked = at::empty_like(largest);
  with_type_of(logits, [&]<class T>(T) {
    const T* x = constant_numbers<T>(logits);
    const int64_t* labels = constant_numbers<int64_t>(label);
    T *m = numbers<T>(largest), *s = numbers<T>(sum), *p = numbers<T>(picked);
    at::parallel_for(0, rows, rows_per_thread(v), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Stats<T> stats = row_stats(x + row * v, v);
        m[row] = stats.largest;
        s[row] = stats.sum;
        p[row] = labels[row] >= 0 && labels[row] < v ? x[row * v + labels[row]] : T(0);
      }
    });
  });
  return {largest, sum, picked};
}

void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale) {
  SL_ANNOUNCE_OP("shardline::cross_entropy_gradient", logits);
  if (!runs_loops(logits)) return aten::cross_entropy_gradient_(logits, label, log_sum_exp, scale);
  const int64_t rows = logits.size(0), v = logits.size(1);
  with_type_of(logits, [&]<class T>(T) {
    T* x = numbers<T>(logits);
    const int64_t* labels = constant_numbers<int64_t>(label);
    const T *lse = constant_numbers<T>(log_sum_exp), *factor = constant_numbers<T>(scale);
    at::parallel_for(0, rows, rows_per_thread(v), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* of_row = x + row * v;
        if (factor[row] == 0) {
          std::fill_n(of_row, v, T(0));
          continue;
        }
        scaled_softmax(of_row, v, lse[row], factor[row]);
        if (labels[row] >= 0 && labels[row] < v) of_row[labels[row]] -= factor[row];
      }
    });
  });
}

}  // namespace shardline
