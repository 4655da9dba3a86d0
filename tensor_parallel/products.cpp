#include "tensor_parallel/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "core/error.h"
#include "tensor_parallel/aten_kernels.h"

namespace shardline {

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, w.t()) : at::mm(x, w.t());
}

void linear_forward_out(at::Tensor y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  if (bias.defined())
    at::addmm_out(y, bias, x, w.t());
  else
    at::mm_out(y, x, w.t());
}

at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& w) {
  return at::mm(dy, w);
}

void linear_input_gradient_out(at::Tensor dx, const at::Tensor& dy, const at::Tensor& w, bool accumulate) {
  if (accumulate)
    dx.addmm_(dy, w);
  else
    at::mm_out(dx, dy, w);
}

void add_weight_gradient(at::Tensor dw, const at::Tensor& dy, const at::Tensor& x) {
  if (dw.scalar_type() == dy.scalar_type())
    dw.addmm_(dy.t(), x);
  else
    dw.add_(at::mm(dy.t(), x));
}

void add_bias_gradient(at::Tensor db, const at::Tensor& dy) {
  aten::add_column_sums(db, dy);
}

void use_products(Products products) {
  if (products == Products::onednn)
    throw ConfigError("oneDNN is not in this build: build with SHARDLINE_ONEDNN=ON and libdnnl-dev installed");
}

const char* products_in_use() {
  return "ATen";
}

}  // namespace shardline
