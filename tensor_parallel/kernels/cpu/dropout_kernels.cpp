#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "core/model/announced_op.h"
#include "core/numbers/philox.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

constexpr int64_t kChunk = 1024;  // features whose mask is made at once

// y = residual + (x + bias) * (keep ? scale : 0)
template <class S, class R>
SHARDLINE_INLINE void combine(R* y, const S* x, const S* bias, const R* residual, const uint8_t* keep, Wide<S> scale,
                              int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    y[i] = narrow<R>(widen(residual[i]) + (widen(x[i]) + widen(bias[i])) * (keep[i] ? scale : Wide<S>(0)));
}

// dx = dy * (keep ? scale : 0), added to part unless that is null
template <class S, class R>
SHARDLINE_INLINE void select(S* dx, const R* dy, Wide<S>* part, const uint8_t* keep, Wide<S> scale, int64_t n) {
  if (part == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = narrow<S>(widen(dy[i]) * (keep[i] ? scale : Wide<S>(0)));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const Wide<S> exact = widen(dy[i]) * (keep[i] ? scale : Wide<S>(0));
      dx[i] = narrow<S>(exact);
      part[i] += exact;
    }
  }
}

#define DEFINE_DROPOUT(S, R)                                                                                 \
  SHARDLINE_VECTORISED void forward(R* y, const S* x, const S* bias, const R* residual, const uint8_t* keep, \
                                    Wide<S> scale, int64_t n) {                                              \
    combine(y, x, bias, residual, keep, scale, n);                                                           \
  }                                                                                                          \
  SHARDLINE_VECTORISED void backward(S* dx, const R* dy, Wide<S>* part, const uint8_t* keep, Wide<S> scale,  \
                                     int64_t n) {                                                            \
    select(dx, dy, part, keep, scale, n);                                                                    \
  }
SHARDLINE_FOR_TYPE_PAIRS(DEFINE_DROPOUT)

// Processes a row in chunks: visit(first feature, features, mask, factor of what is kept).
template <class Visit>
void for_chunks(const DropoutRows& rows, int64_t row, int64_t features, const Visit& visit) {
  std::array<uint8_t, kChunk> keep;
  const int64_t token = rows.first_token + row;
  const bool drops = rows.probability > 0 && token < rows.tokens;
  const double scale = !drops ? 1 : rows.probability < 1 ? 1 / (1 - rows.probability) : 0;
  RandomStream stream{rows.seed, rows.op, rows.step};
  if (drops)
    stream.sample = rows.samples.const_data_ptr<int64_t>()[token];
  else
    keep.fill(1);
  const int64_t place = drops ? rows.places.const_data_ptr<int64_t>()[token] : 0;
  for (int64_t first = 0; first < features; first += kChunk) {
    const int64_t count = std::min(kChunk, features - first);
    if (drops) random_keep(stream, place * features + first, count, 1 - rows.probability, keep.data());
    visit(first, count, keep.data(), scale);
  }
}

void check_rows(const at::Tensor& x, const DropoutRows& rows) {
  if (rows.probability == 0 || x.is_meta()) return;
  for (const at::Tensor& keys : {rows.samples, rows.places})
    SL_ASSERT(keys.scalar_type() == at::kLong && keys.device() == x.device() && keys.is_contiguous() &&
                  keys.numel() == rows.tokens,
              keys.numel(), " keys of dropout for ", rows.tokens, " tokens");
}

}  // namespace

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows) {
  SL_ANNOUNCE_OP("shardline::bias_dropout_add_forward", x);
  check_rows(x, rows);
  if (!runs_loops(x)) return kernels_for(x).bias_dropout_add_forward(x, bias, residual, rows);
  const int64_t n = x.size(1);
  const at::Tensor& like = residual.defined() ? residual : x;
  const at::Tensor y = at::empty_like(like);
  if (x.is_meta()) return y;
  const at::Tensor zeros = at::zeros({n}, like.options());  // sufficient for either type
  with_types_of(x.scalar_type(), like.scalar_type(), [&]<class S, class R>(S, R) {
    const S *from = constant_numbers<S>(x), *no_bias = data_of<S>(zeros);
    const S* added = bias.defined() ? constant_numbers<S>(bias) : no_bias;
    const R *other = constant_numbers<R>(residual), *nothing = constant_numbers<R>(zeros);
    R* to = numbers<R>(y);
    at::parallel_for(0, x.size(0), rows_per_thread(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for_chunks(rows, row, n, [&](int64_t first, int64_t count, const uint8_t* keep, double scale) {
          const int64_t start = row * n + first;
          forward(to + start, from + start, added + first, other != nullptr ? other + start : nothing + first, keep,
                  Wide<S>(scale), count);
        });
    });
  });
  return y;
}

at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows, at::ScalarType branch) {
  SL_ANNOUNCE_OP("shardline::bias_dropout_backward", dy);
  check_rows(dy, rows);
  if (!runs_loops(dy)) return kernels_for(dy).bias_dropout_backward(dy, rows, bias_grad, valid_rows, branch);
  const int64_t n = dy.size(1);
  const RowBlocks blocks(dy.size(0));
  const at::Tensor dx = at::empty_like(dy, dy.options().dtype(branch));
  if (dy.is_meta()) return dx;
  const at::Tensor parts =
      bias_grad.defined() ? at::zeros({blocks.count, n}, dy.options().dtype(wide_type(dy))) : at::Tensor();
  with_types_of(branch, dy.scalar_type(), [&]<class S, class R>(S, R) {
    const R* from = constant_numbers<R>(dy);
    S* to = numbers<S>(dx);
    auto* sums = numbers<Wide<S>>(parts);
    at::parallel_for(0, blocks.count, blocks.per_thread(n), [&](int64_t first_block, int64_t last_block) {
      for (int64_t b = first_block; b < last_block; ++b)
        for (int64_t row = blocks.begin(b); row < blocks.end(b); ++row)
          for_chunks(rows, row, n, [&](int64_t first, int64_t count, const uint8_t* keep, double scale) {
            const int64_t start = row * n + first;
            auto* part = sums != nullptr && row < valid_rows ? sums + b * n + first : nullptr;
            backward(to + start, from + start, part, keep, Wide<S>(scale), count);
          });
    });
  });
  if (bias_grad.defined()) add_partial_sums(bias_grad, parts);
  return dx;
}

}  // namespace shardline
