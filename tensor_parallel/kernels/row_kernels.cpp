#include "tensor_parallel/kernels/row_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>

#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/number_types.h"

namespace shardline {
namespace {

std::atomic<KernelLibrary> chosen{KernelLibrary::automatic};

constexpr int64_t kNumbersPerThread = 32768, kMostBlocks = 64, kLeastBlockRows = 16;

template <class S>
SHARDLINE_INLINE void add_rows_to(Wide<S>* total, const S* x, int64_t rows, int64_t stride, int64_t n) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4, x += 4 * stride) {
    const S *b = x + stride, *c = b + stride, *d = c + stride;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) total[j] += (widen(x[j]) + widen(b[j])) + (widen(c[j]) + widen(d[j]));
  }
  for (; i < rows; ++i, x += stride) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) total[j] += widen(x[j]);
  }
}

// Columns [first, last) of table[index[i]] += rows[i].
template <class S>
SHARDLINE_INLINE void add_columns_to(Wide<S>* table, const int64_t* index, const S* rows, int64_t count, int64_t n,
                                     int64_t first, int64_t last) {
  for (int64_t i = 0; i < count; ++i) {
    Wide<S>* to = table + index[i] * n;
    const S* from = rows + i * n;
#pragma omp simd
    for (int64_t j = first; j < last; ++j) to[j] += widen(from[j]);
  }
}

#define DEFINE_ADDITIONS(S)                                                                                            \
  SHARDLINE_VECTORISED void add_rows(Wide<S>* total, const S* x, int64_t rows, int64_t stride, int64_t n) {            \
    add_rows_to(total, x, rows, stride, n);                                                                            \
  }                                                                                                                    \
  SHARDLINE_VECTORISED void add_columns(Wide<S>* table, const int64_t* index, const S* rows, int64_t count, int64_t n, \
                                        int64_t first, int64_t last) {                                                 \
    add_columns_to(table, index, rows, count, n, first, last);                                                         \
  }
SHARDLINE_FOR_TYPES(DEFINE_ADDITIONS)

}  // namespace

std::array<at::Tensor, 3> parts_of_qkv(const at::Tensor& qkv) {
  const at::Tensor parts = qkv.permute({2, 0, 3, 1, 4});
  return {parts[0], parts[1], parts[2]};
}

at::Tensor side_by_side(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
  const at::Tensor all = at::empty({dq.size(0), dq.size(2), 3, dq.size(1), dq.size(3)}, dq.options());
  const auto parts = parts_of_qkv(all);
  parts[0].copy_(dq);
  parts[1].copy_(dk);
  parts[2].copy_(dv);
  return all;
}

bool runs_loops(const at::Tensor& t) {
  const auto type = t.scalar_type();
  const bool is_floating = type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
  return is_floating && (t.is_meta() || (t.is_cpu() && chosen != KernelLibrary::aten));
}

void use_kernels(KernelLibrary kernels) {
  chosen = kernels;
}

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
  with_wide_type_of(partial, [&]<class T>(T) {
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
  SL_ASSERT(x.stride(1) == 1, "rows must be contiguous; strides ", x.strides());
  const at::Tensor partial = at::zeros({blocks.count, n}, x.options().dtype(wide_type(x)));
  with_type_of(x, [&]<class S>(S) {
    const S* from = data_of<S>(x);
    auto* to = numbers<Wide<S>>(partial);
    at::parallel_for(0, blocks.count, blocks.per_thread(n), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b)
        add_rows(to + b * n, from + blocks.begin(b) * x.stride(0), blocks.end(b) - blocks.begin(b), x.stride(0), n);
    });
  });
  add_partial_sums(total, partial);
}

void add_indexed_rows(at::Tensor table, const at::Tensor& index, const at::Tensor& rows) {
  if (rows.is_meta()) return;
  const int64_t count = index.numel(), n = table.size(1);
  SL_ASSERT(rows.size(0) == count && rows.size(1) == n && table.scalar_type() == wide_type(rows), "rows ", rows.sizes(),
            " ", rows.scalar_type(), " go to a table of ", table.sizes(), " ", table.scalar_type());
  with_type_of(rows, [&]<class S>(S) {
    auto* to = numbers<Wide<S>>(table);
    const int64_t* row_of = constant_numbers<int64_t>(index);
    const S* from = constant_numbers<S>(rows);
    at::parallel_for(0, n, 16 * rows_per_thread(std::max<int64_t>(1, count)),
                     [&](int64_t first, int64_t last) { add_columns(to, row_of, from, count, n, first, last); });
  });
}

}  // namespace shardline
