#include "tensor_parallel/products/products.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <atomic>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/model/announced_op.h"
#include "tensor_parallel/kernels/kernel_table.h"
#include "tensor_parallel/kernels/row_kernels.h"
#include "tensor_parallel/products/products_onednn.h"
#include "tensor_parallel/products/widened_products.h"

namespace shardline {
namespace {

std::atomic<ProductLibrary> chosen{ProductLibrary::automatic};

bool is_half(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

bool has_dense(const at::Tensor& t, int dim) {
  const int other = 1 - dim;
  return t.stride(dim) == 1 && (t.size(other) == 1 || t.stride(other) >= t.size(dim));
}
bool is_plain(const at::Tensor& t) {
  return t.is_cpu() && t.dim() == 2 && t.numel() > 0 && (has_dense(t, 1) || has_dense(t, 0));
}

enum class Way { aten, onednn, widened };

Way way_of(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  if (!is_plain(a) || !is_plain(b) || !is_plain(c) || !has_dense(c, 1)) return Way::aten;
  const at::ScalarType type = a.scalar_type(), result = c.scalar_type();
  const bool fits = b.scalar_type() == type && (result == type || (is_half(type) && result == at::kFloat));
  if (!fits) return Way::aten;  // ATen's error explains what does not fit
  const bool to_onednn = chosen != ProductLibrary::aten && onednn_library().matmul != nullptr;
  if (type == at::kFloat) return to_onednn ? Way::onednn : Way::aten;
  if (!is_half(type)) return Way::aten;
  if (to_onednn && multiplies_natively(type)) return Way::onednn;
  // On CPUs, ATen's products in half precision are far slower than widened ones, and their results are never fp32.
  return chosen != ProductLibrary::aten || result == at::kFloat ? Way::widened : Way::aten;
}

// The stride of a single row or column has no meaning, and views have any; oneDNN fails if it is shorter than the row
// or column.
int64_t long_stride(const at::Tensor& t, int dim) {
  const int other = 1 - dim;
  return t.size(dim) == 1 && t.stride(other) == 1 ? t.size(other) : t.stride(dim);
}

void multiply_by_onednn(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                        bool accumulate) {
  ShardlineMatmul x = {};
  x.a = a.const_data_ptr(), x.a_row_stride = long_stride(a, 0), x.a_column_stride = long_stride(a, 1);
  x.b = b.const_data_ptr(), x.b_row_stride = long_stride(b, 0), x.b_column_stride = long_stride(b, 1);
  x.c = c.mutable_data_ptr(), x.c_row_stride = long_stride(c, 0);
  x.m = c.size(0), x.n = c.size(1), x.k = a.size(1);
  x.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  x.accumulate = accumulate;
  x.bf16_factors = a.scalar_type() == at::kBFloat16;
  x.bf16_result = c.scalar_type() == at::kBFloat16;
  const char* error = onednn_library().matmul(&x);
  if (error != nullptr)
    throw RunError(cat(onednn_library().name, " failed in the product [", x.m, ", ", x.k, "] x [", x.k, ", ", x.n,
                       "]: ", error, "; configure with SHARDLINE_ONEDNN=OFF to do without it"));
}

void multiply_by_aten(at::Tensor c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate) {
  if (bias.defined())
    at::addmm_out(c, bias, a, b);
  else if (!accumulate)
    at::mm_out(c, a, b);
  else if (c.scalar_type() == a.scalar_type())
    c.addmm_(a, b);
  else if (is_accelerator(c))
    at::addmm_out(c, c, a, b, c.scalar_type());
  else
    c.add_(at::mm(a, b));
}

// How many elements of this type a GPU's tensor cores read and write at once; 1 if its products do not use them.
int64_t pack_of(at::ScalarType type) {
  const bool on_tensor_cores = is_half(type) || (type == at::kFloat && at::globalContext().allowTF32CuBLAS());
  return on_tensor_cores ? 16 / static_cast<int64_t>(c10::elementSize(type)) : 1;
}

// How a product is divided in two: the first part of a dimension, and the rest. If contiguous elements of a matrix do
// not fill whole packs, cuBLAS has only slow kernels for the product. Dividing it is worthwhile if rows nevertheless
// begin at multiples of a pack, as those of logits do, and if most elements are in the first part.
struct Division {
  enum Dim { none, rows, columns, terms } dim = none;
  int64_t first = 0;
};

Division division_of(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  constexpr int64_t kSmall = 2048;
  const int64_t pack = pack_of(a.scalar_type());
  const auto first_of = [&](int64_t size) {
    // The rest is never 1: cuBLAS would treat it as a vector, and its kernels for vectors round a product before they
    // add the bias.
    const int64_t rest = size < kSmall ? 0 : size % pack;
    return size - rest - (rest == 1 ? pack : 0);
  };
  const auto has_whole_strides = [&](const at::Tensor& t, int dense) { return t.stride(1 - dense) % pack == 0; };
  const int64_t rows = first_of(c.size(0)), columns = first_of(c.size(1)), terms = first_of(a.size(1));
  if (rows < c.size(0) && has_dense(a, 0) && has_whole_strides(a, 0)) return {Division::rows, rows};
  if (columns < c.size(1) && has_dense(c, 1) && has_whole_strides(c, 1)) return {Division::columns, columns};
  if (terms < a.size(1) && has_dense(a, 1) && has_whole_strides(a, 1) && !has_dense(b, 0) && !bias.defined())
    return {Division::terms, terms};
  return {};
}

// Where the sums of two products are accumulated: c if it is at least fp32, otherwise new memory in fp32.
at::Tensor room_for_sums(const at::Tensor& c) {
  return is_half(c.scalar_type()) ? at::empty(c.sizes(), c.options().dtype(at::kFloat)) : c;
}

// c = a b (+ c) in two products, over the first terms of each sum and over the rest, rounded once.
void multiply_terms(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, int64_t first, bool accumulate) {
  at::Tensor sums = room_for_sums(c);
  const bool in_place = sums.is_same(c);
  const auto add = [&](int64_t start, int64_t count, bool to_sums) {
    const auto left = a.narrow(1, start, count), right = b.narrow(0, start, count);
    if (sums.scalar_type() == a.scalar_type())
      at::addmm_out(sums, sums, left, right, to_sums ? 1 : 0);
    else
      at::addmm_out(sums, sums, left, right, sums.scalar_type(), to_sums ? 1 : 0);
  };
  add(0, first, in_place && accumulate);
  add(first, a.size(1) - first, true);
  if (in_place) return;
  if (accumulate)
    c.add_(sums);
  else
    c.copy_(sums);
}

void multiply_on_gpu(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                     bool accumulate) {
  const auto [dim, first] = division_of(c, a, b, bias);
  switch (dim) {
    case Division::none:
      return multiply_by_aten(c, a, b, bias, accumulate);
    case Division::terms:
      return multiply_terms(c, a, b, first, accumulate);
    case Division::rows:
      for (const auto& [start, count] : {std::pair(int64_t{0}, first), std::pair(first, c.size(0) - first)})
        multiply_by_aten(c.narrow(0, start, count), a.narrow(0, start, count), b, bias, accumulate);
      return;
    case Division::columns:
      for (const auto& [start, count] : {std::pair(int64_t{0}, first), std::pair(first, c.size(1) - first)})
        multiply_by_aten(c.narrow(1, start, count), a, b.narrow(1, start, count),
                         bias.defined() ? bias.narrow(0, start, count) : bias, accumulate);
      return;
  }
}

void multiply_fp32(at::Tensor c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (way_of(c, a, b) == Way::onednn)
    multiply_by_onednn(c, a, b, {}, accumulate);
  else
    multiply_by_aten(c, a, b, {}, accumulate);
}

// c = a b + bias (+ c with accumulate, without a bias); a and b may be transposed views.
void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias, bool accumulate) {
  if (c.is_meta()) {  // a dry run
    if (is_accelerator(c) && division_of(c, a, b, bias).dim == Division::terms) room_for_sums(c);
    return;
  }
  if (is_accelerator(c)) return multiply_on_gpu(c, a, b, bias, accumulate);
  switch (way_of(c, a, b)) {
    case Way::onednn:
      return multiply_by_onednn(c, a, b, bias, accumulate);
    case Way::widened:
      return widened_product(c, a, b, bias, accumulate, multiply_fp32);
    case Way::aten:
      return multiply_by_aten(c, a, b, bias, accumulate);
  }
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  at::Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  linear_forward_out(y, x, w, bias);
  return y;
}

void linear_forward_out(at::Tensor y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  SL_ANNOUNCE_OP("shardline::linear_forward", x, w);
  multiply(y, x, w.t(), bias, false);
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& w) {
  at::Tensor dx = at::empty({dy.size(0), w.size(1)}, dy.options());
  linear_input_gradient_out(dx, dy, w, false);
  return dx;
}

void linear_input_gradient_out(at::Tensor dx, const at::Tensor& dy, const at::Tensor& w, bool accumulate) {
  SL_ANNOUNCE_OP("shardline::linear_input_gradient", dy, w);
  multiply(dx, dy, w, {}, accumulate);
}

void add_weight_gradient(at::Tensor dw, const at::Tensor& dy, const at::Tensor& x) {
  SL_ANNOUNCE_OP("shardline::add_weight_gradient", dy, x);
  multiply(dw, dy.t(), x, {}, true);
}

void add_bias_gradient(at::Tensor db, const at::Tensor& dy) {
  SL_ANNOUNCE_OP("shardline::add_bias_gradient", dy);
  if (dy.is_meta()) return;  // a dry run
  if (runs_loops(dy) && dy.stride(1) == 1)
    add_row_sums(db, dy);
  else
    kernels_for(dy).add_column_sums(db, dy);
}

void product_out(at::Tensor c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  multiply(c, a, b, {}, accumulate);
}

bool multiplies_natively(at::ScalarType type) {
  if (!is_half(type) || chosen == ProductLibrary::aten) return true;
  return type == at::kBFloat16 && onednn_library().multiplies_bf16;
}

void set_gpu_products(bool tf32) {
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
}

void use_products(ProductLibrary products) {
  if (products == ProductLibrary::onednn && onednn_library().matmul == nullptr)
    throw ConfigError(cat("matrix products with oneDNN were requested, but ", onednn_library().why_not));
  chosen = products;
}

const char* products_in_use() {
  return chosen == ProductLibrary::aten || onednn_library().matmul == nullptr ? "ATen" : onednn_library().name.c_str();
}

}  // namespace shardline
