// The three matrix products of a linear layer, y = x w^T + b. On CPUs they use oneDNN if available (the weight gradient
// is added directly to its buffer, without a temporary), otherwise ATen; on GPUs ATen. ATen is the reference. Tensors:
// x [m, k], w [n, k], y and dy [m, n], row-major; rows may be strided. All have one type: fp32, fp64, bf16 or fp16,
// except for dw and db, which are fp32 for half precision. Half-precision products are summed in fp32 and rounded once,
// except that cuBLAS may round a product with a single row or output before it adds the bias. CPUs with instructions
// for bf16 use them through oneDNN; others, and all CPUs for fp16, multiply in fp32, one block at a time
// (widened_products.h).
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// y = x w^T + bias; bias [n] or undefined.
at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);
// As above, into an existing y.
void linear_forward_out(at::Tensor y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);

// dx = dy w
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& w);
void linear_input_gradient_out(at::Tensor dx, const at::Tensor& dy, const at::Tensor& w, bool accumulate);

// dw += dy^T x; dw [n, k] of at least fp32.
void add_weight_gradient(at::Tensor dw, const at::Tensor& dy, const at::Tensor& x);

// db += sum over rows of dy; db [n] of at least fp32.
void add_bias_gradient(at::Tensor db, const at::Tensor& dy);

// c = a b (+ c): a product of activations on CPUs, with the same libraries; a and b may be transposed views. Inside a
// parallel loop it uses only the calling thread.
void product_out(at::Tensor c, const at::Tensor& a, const at::Tensor& b, bool accumulate);

// Whether CPU tensors of this type are multiplied without conversion.
bool multiplies_natively(at::ScalarType type);

// How this process multiplies on GPUs from now on. tf32: fp32 values are first rounded to TF32. Half-precision products
// are always summed in fp32, which ATen does not guarantee on GPUs by default.
void set_gpu_products(bool tf32);

enum class ProductLibrary { automatic, aten, onednn };
// For tests and benchmarks; the default is `automatic`. Throws ConfigError if this build does not include
// oneDNN.
void use_products(ProductLibrary products);
const char* products_in_use();  // "oneDNN 2.6.3" or "ATen"

}  // namespace shardline
