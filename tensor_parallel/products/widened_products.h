// Products of half-precision matrices for processors without instructions for them: one block of each factor at a
// time is copied to fp32 and multiplied, and the sums are rounded once. Factors and results never exist in fp32 as a
// whole.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// c (+)= a b in fp32; a and b may be transposed views, and the rows of c strided.
using MultiplyFp32 = void (*)(at::Tensor c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

// c [m, n] = a [m, k] b [k, n] + bias [n] (+ c with accumulate). a and b: bf16 or fp16, dense along one dimension; c:
// the same type, or fp32, to which the product is then added in place; bias: undefined, or of c's half-precision type.
// Keeps a buffer of at most kWidenedRoom fp32 numbers for every thread that calls it.
void widened_product(at::Tensor c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate,
                     MultiplyFp32 multiply);

constexpr int64_t kWidenedRoom = 3 * 1024 * 1024;

}  // namespace shardline
