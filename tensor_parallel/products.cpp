#include "tensor_parallel/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <atomic>

#include "core/announced_op.h"
#include "core/error.h"
#include "tensor_parallel/aten_kernels.h"
#include "tensor_parallel/products_onednn.h"
#include "tensor_parallel/row_kernels.h"

namespace shardline {
namespace {

std::atomic<Products> chosen{Products::automatic};

bool is_plain(const at::Tensor& t) {
  return t.is_cpu() && t.scalar_type() == at::kFloat && t.dim() == 2 && t.numel() > 0 && t.stride(1) == 1 &&
         (t.size(0) == 1 || t.stride(0) >= t.size(1));
}

bool runs_onednn(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  return chosen != Products::aten && onednn_library().matmul != nullptr && is_plain(c) && is_plain(a) && is_plain(b);
}

struct Operand {
  const float* data;
  int64_t row_stride, column_stride;
};

Operand as_is(const at::Tensor& t) {
  return {t.const_data_ptr<float>(), t.stride(0), 1};
}
Operand transposed(const at::Tensor& t) {
  return {t.const_data_ptr<float>(), 1, t.stride(0)};
}

// c = a b + bias, or c += a b; k is the dimension that is summed.
void onednn(const at::Tensor& c, Operand a, Operand b, int64_t k, const at::Tensor& bias, bool accumulate) {
  ShardlineMatmul x = {};
  x.a = a.data, x.a_row_stride = a.row_stride, x.a_column_stride = a.column_stride;
  x.b = b.data, x.b_row_stride = b.row_stride, x.b_column_stride = b.column_stride;
  x.c = c.mutable_data_ptr<float>(), x.c_row_stride = c.stride(0);
  x.m = c.size(0), x.n = c.size(1), x.k = k;
  x.bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  x.accumulate = accumulate;
  const char* error = onednn_library().matmul(&x);
  if (error != nullptr)
    throw RunError(cat(onednn_library().name, " failed in the product [", x.m, ", ", k, "] x [", k, ", ", x.n,
                       "]: ", error, "; configure with SHARDLINE_ONEDNN=OFF to do without it"));
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  at::Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  linear_forward_out(y, x, w, bias);
  return y;
}

void linear_forward_out(at::Tensor y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  SL_ANNOUNCE_OP("shardline::linear_forward", x, w);
  if (runs_onednn(y, x, w))
    onednn(y, as_is(x), transposed(w), x.size(1), bias, false);
  else if (bias.defined())
    at::addmm_out(y, bias, x, w.t());
  else
    at::mm_out(y, x, w.t());
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& w) {
  at::Tensor dx = at::empty({dy.size(0), w.size(1)}, dy.options());
  linear_input_gradient_out(dx, dy, w, false);
  return dx;
}

void linear_input_gradient_out(at::Tensor dx, const at::Tensor& dy, const at::Tensor& w, bool accumulate) {
  SL_ANNOUNCE_OP("shardline::linear_input_gradient", dy, w);
  if (runs_onednn(dx, dy, w))
    onednn(dx, as_is(dy), as_is(w), dy.size(1), {}, accumulate);
  else if (accumulate)
    dx.addmm_(dy, w);
  else
    at::mm_out(dx, dy, w);
}

void add_weight_gradient(at::Tensor dw, const at::Tensor& dy, const at::Tensor& x) {
  SL_ANNOUNCE_OP("shardline::add_weight_gradient", dy, x);
  if (runs_onednn(dw, dy, x))
    onednn(dw, transposed(dy), as_is(x), dy.size(0), {}, true);
  else if (dw.scalar_type() == dy.scalar_type())
    dw.addmm_(dy.t(), x);
  else
    dw.add_(at::mm(dy.t(), x));
}

void add_bias_gradient(at::Tensor db, const at::Tensor& dy) {
  SL_ANNOUNCE_OP("shardline::add_bias_gradient", dy);
  if (runs_loops(dy) && dy.stride(1) == 1)
    add_row_sums(db, dy);
  else
    aten::add_column_sums(db, dy);
}

void use_products(Products products) {
  if (products == Products::onednn && onednn_library().matmul == nullptr)
    throw ConfigError(cat("matrix products with oneDNN were asked for, but ", onednn_library().why_not));
  chosen = products;
}

const char* products_in_use() {
  return chosen == Products::aten || onednn_library().matmul == nullptr ? "ATen" : onednn_library().name.c_str();
}

}  // namespace shardline
