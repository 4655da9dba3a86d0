// The interface of libshardline_onednn.so, the only code that sees oneDNN. It is a separate library because libtorch
// contains another oneDNN and exports some of its symbols: loaded with RTLD_DEEPBIND, ours uses its own. Plain C, so
// that neither side needs the other's headers.
#pragma once
#include <stdint.h>

extern "C" {

// c [m, n] = a [m, k] b [k, n] + bias [n] (+ c if accumulate); sizes > 0. Strides are in elements; the rows of c and
// the bias are contiguous. a and b are both fp32, or both bf16 if the processor can multiply it; c is fp32, or bf16
// with bf16 factors; the bias has c's type. Sums are fp32. Uses as many threads as OpenMP would in the calling
// thread.
struct ShardlineMatmul {
  const void* a;
  const void* b;
  const void* bias;  // may be null; must be if accumulate
  void* c;
  int64_t m, n, k;
  int64_t a_row_stride, a_column_stride, b_row_stride, b_column_stride, c_row_stride;
  int accumulate, bf16_factors, bf16_result;
};

// Returns null, or an error message that is valid until the thread's next call.
const char* shardline_onednn_matmul(const ShardlineMatmul* matmul);

// How many products all threads have prepared so far. Each thread prepares one for every new combination of sizes,
// strides and types, which takes longer than running a small one, and keeps up to a few hundred before it starts over.
int64_t shardline_onednn_prepared(void);

// Whether this processor has instructions for products of bf16.
int shardline_onednn_multiplies_bf16(void);

// "oneDNN 2.6.3": the version of the library at run time.
const char* shardline_onednn_version(void);
}
