// How loops over rows are divided among threads, and sums over rows that follow this division.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "core/error.h"
#include "core/memory/tensor_data.h"
#include "tensor_parallel/kernels/number_types.h"

namespace shardline {

// dq, dk and dv [batch, heads, length, head_dim], strided, in the form that attention_backward returns.
at::Tensor side_by_side(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv);

// Whether a kernel runs our loops, and not ATen, on tensors like this one. In a dry run (models/graph/dry_run.h), it
// runs them on meta tensors, whichever device these represent: it allocates its results and returns. Only attention
// allocates memory as the represented device would (cpu/dry_attention.h).
bool runs_loops(const at::Tensor& t);

// The type of statistics, sums and parameter gradients for tensors like this one: at least fp32.
inline at::ScalarType wide_type(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls run(S{}) with the type of the tensor's numbers.
template <class Run>
void with_type_of(const at::Tensor& t, const Run& run) {
  switch (t.scalar_type()) {
    case at::kDouble:
      return run(double{});
    case at::kBFloat16:
      return run(Bf16{});
    case at::kHalf:
      return run(Fp16{});
    default:
      return run(float{});
  }
}

// As above, for a tensor of sums, which is fp32 or fp64.
template <class Run>
void with_wide_type_of(const at::Tensor& t, const Run& run) {
  if (t.scalar_type() == at::kDouble)
    run(double{});
  else
    run(float{});
}

// Calls run(S{}, R{}) for a tensor of the layer and one of the residual stream: of the same type, or half precision and
// fp32.
template <class Run>
void with_types_of(at::ScalarType layer, at::ScalarType residual, const Run& run) {
  if (layer == residual) {
    if (layer == at::kDouble) return run(double{}, double{});
    if (layer == at::kBFloat16) return run(Bf16{}, Bf16{});
    if (layer == at::kHalf) return run(Fp16{}, Fp16{});
    return run(float{}, float{});
  }
  SL_ASSERT(residual == at::kFloat && (layer == at::kBFloat16 || layer == at::kHalf), "a layer of ", layer,
            " between residuals of ", residual);
  if (layer == at::kBFloat16) return run(Bf16{}, float{});
  return run(Fp16{}, float{});
}

// Pointer to the tensor's numbers; null for an undefined tensor.
template <class S>
S* numbers(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  SL_ASSERT(t.is_contiguous() && t.element_size() == sizeof(S), "a kernel needs contiguous tensors; sizes ", t.sizes(),
            ", strides ", t.strides(), ", ", t.scalar_type());
  return mutable_data_of<S>(t);
}
template <class S>
const S* constant_numbers(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  SL_ASSERT(t.is_contiguous() && t.element_size() == sizeof(S), "a kernel needs contiguous tensors; sizes ", t.sizes(),
            ", strides ", t.strides(), ", ", t.scalar_type());
  return data_of<S>(t);
}

// The minimum number of rows of n numbers for which a thread is worthwhile.
int64_t rows_per_thread(int64_t n);

// Divides rows into blocks whose size depends only on the number of rows. Sums per block, added in block order,
// therefore do not depend on the number of threads.
struct RowBlocks {
  explicit RowBlocks(int64_t row_count);
  int64_t begin(int64_t block) const { return block * block_rows; }
  int64_t end(int64_t block) const { return std::min(rows, (block + 1) * block_rows); }
  int64_t per_thread(int64_t n) const { return std::max<int64_t>(1, rows_per_thread(n) / block_rows); }
  int64_t rows, block_rows, count;
};

// total [n] += the sum of partial [blocks, n] over blocks, in order.
void add_partial_sums(at::Tensor total, const at::Tensor& partial);

// total [n] += the sum of the rows of x [rows, n], which may be strided; total has x's wide type.
void add_row_sums(at::Tensor total, const at::Tensor& x);

// table[index[i]] += rows[i] in ascending i; table [any, n] of rows' wide type, index [count], rows [count, n].
void add_indexed_rows(at::Tensor table, const at::Tensor& index, const at::Tensor& rows);

}  // namespace shardline
