// How the loops over rows are cut among threads, and the sums over rows that come of it.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "core/error.h"

namespace shardline {

// Whether a kernel runs our loops on tensors like this one; else ATen.
inline bool runs_loops(const at::Tensor& t) {
  return t.is_cpu() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble);
}

// Calls run(T{}) with the tensor's number type.
template <class Run>
void with_type_of(const at::Tensor& t, const Run& run) {
  if (t.scalar_type() == at::kDouble)
    run(double{});
  else
    run(float{});
}

// The tensor's numbers; null for an undefined one.
template <class T>
T* numbers(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  SL_ASSERT(t.is_contiguous(), "a kernel's tensors are contiguous; sizes ", t.sizes(), ", strides ", t.strides());
  return t.mutable_data_ptr<T>();
}
template <class T>
const T* constant_numbers(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  SL_ASSERT(t.is_contiguous(), "a kernel's tensors are contiguous; sizes ", t.sizes(), ", strides ", t.strides());
  return t.const_data_ptr<T>();
}

// So many rows of n numbers are worth a thread.
int64_t rows_per_thread(int64_t n);

// Rows cut into blocks whose size depends on their number alone: sums by block, added in the blocks' order, do not
// depend on the number of threads.
struct RowBlocks {
  explicit RowBlocks(int64_t row_count);
  int64_t begin(int64_t block) const { return block * block_rows; }
  int64_t end(int64_t block) const { return std::min(rows, (block + 1) * block_rows); }
  int64_t per_thread(int64_t n) const { return std::max<int64_t>(1, rows_per_thread(n) / block_rows); }
  int64_t rows, block_rows, count;
};

// total [n] += the sum of partial [blocks, n] over blocks, in their order.
void add_partial_sums(at::Tensor total, const at::Tensor& partial);

// total [n] += the sum of the rows of x [rows, n], whose rows may be strided.
void add_row_sums(at::Tensor total, const at::Tensor& x);

}  // namespace shardline
