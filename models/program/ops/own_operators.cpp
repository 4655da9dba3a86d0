#include "models/program/ops/own_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <optional>
#include <vector>

#include "core/device/accelerator.h"
#include "models/program/ops/linear_op.h"
#include "models/program/ops/own_op.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/kernels/row_kernels.h"

namespace shardline {
namespace {

using torch::jit::Stack;

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}

bool is_one(const c10::IValue& number) {
  return number.toScalar().equal(1);
}

// ---- products

bool multiply(Stack& stack, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightOrder order) {
  if (!is_own_linear(x, weight, bias, order)) return false;
  stack = {own_linear(x, weight, bias, order)};
  return true;
}

// input, weight, bias
bool run_linear(Stack& stack) {
  return multiply(stack, stack[0].toTensor(), stack[1].toTensor(), optional_tensor(stack[2]),
                  WeightOrder::outputs_first);
}

// self, mat1, mat2, beta, alpha
bool run_addmm(Stack& stack) {
  return is_one(stack[3]) && is_one(stack[4]) &&
         multiply(stack, stack[1].toTensor(), stack[2].toTensor(), stack[0].toTensor(), WeightOrder::inputs_first);
}

// self, other: mm, and matmul if `other` is a matrix
bool run_matmul(Stack& stack) {
  return multiply(stack, stack[0].toTensor(), stack[1].toTensor(), {}, WeightOrder::inputs_first);
}

// self [rows, in], mat2 [groups, in, out], offs [groups], bias, out_dtype: multiplies the rows of each group, which end
// before these places, with its matrix; rows after the last group give zeros. ATen's operator takes only rows of 16
// bytes, and no float64.
bool run_grouped_product(Stack& stack) {
  const at::Tensor x = stack[0].toTensor(), weight = stack[1].toTensor(), ends = optional_tensor(stack[2]);
  const bool has_ends =
      ends.defined() && weight.dim() == 3 && weight.size(0) > 0 && ends.sizes() == weight.sizes().slice(0, 1);
  if (x.dim() != 2 || !has_ends || !stack[3].isNone() || !stack[4].isNone()) return false;
  const auto matrices = weight.unbind(0);
  std::vector<int64_t> lengths;
  int64_t begin = 0;
  const at::Tensor places = ends.to(at::kCPU, at::kLong).contiguous();
  for (const int64_t end : at::IntArrayRef(places.const_data_ptr<int64_t>(), places.numel())) {
    lengths.push_back(end - begin);
    begin = end;
  }
  lengths.push_back(x.size(0) - begin);
  const auto rows = x.split_with_sizes(lengths);
  std::vector<at::Tensor> products;
  for (size_t i = 0; i < matrices.size(); ++i) products.push_back(rows[i].mm(matrices[i]));
  products.push_back(at::zeros({lengths.back(), weight.size(2)}, products[0].options()));
  stack = {at::cat(products)};
  return true;
}

// ---- kernels over rows

// Whether our kernels take the tensor, as rows of its last dimension, and are better than ATen's operators.
bool fits_kernels(const at::Tensor& x) {
  const bool has_kernels = runs_loops(x) || (is_accelerator(x.device()) && x.scalar_type() != at::kDouble);
  return has_kernels && x.layout() == at::kStrided && x.is_floating_point() && x.dim() > 0 && x.numel() > 0 &&
         x.is_contiguous();
}

at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

// input, normalized_shape, weight, bias, eps, cudnn_enable
bool run_layer_norm(Stack& stack) {
  const at::Tensor x = stack[0].toTensor(), weight = optional_tensor(stack[2]), bias = optional_tensor(stack[3]);
  const auto fits = [&](const at::Tensor& t) {
    return t.defined() && t.dim() == 1 && t.is_contiguous() && t.scalar_type() == x.scalar_type() &&
           t.device() == x.device();
  };
  if (!fits_kernels(x) || stack[1].toIntVector() != std::vector<int64_t>{x.size(-1)} || !fits(weight) || !fits(bias))
    return false;
  at::Tensor y, mean, rstd;
  {
    const at::NoGradGuard no_grad;
    std::tie(y, mean, rstd) = layer_norm_forward(as_rows(x.detach()), weight, bias, stack[4].toDouble());
    y = y.view(x.sizes());
  }
  stack = {with_own_backward(
      y, {x}, {weight, bias}, {x, mean, rstd}, "LayerNorm",
      [used = weight.detach()](const at::Tensor& d_y, const SavedTensors& kept, const std::vector<at::Tensor>& sums) {
        const at::Tensor rows = as_rows(kept[0]);
        return std::vector<at::Tensor>{
            layer_norm_backward(as_rows(d_y).contiguous(), rows, kept[1], kept[2], used, sums[0], sums[1], rows.size(0))
                .view(d_y.sizes())};
      })};
  return true;
}

// self, approximate
bool run_gelu(Stack& stack) {
  const at::Tensor x = stack[0].toTensor();
  const Activation activation = stack[1].toStringRef() == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  if (!fits_kernels(x)) return false;
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = bias_activation_forward(as_rows(x.detach()), {}, activation).view(x.sizes());
  }
  stack = {
      with_own_backward(y, {x}, {}, {x}, "Gelu",
                        [activation](const at::Tensor& d_y, const SavedTensors& kept, const std::vector<at::Tensor>&) {
                          return std::vector<at::Tensor>{
                              bias_activation_backward(as_rows(d_y).contiguous(), as_rows(kept[0]), {}, activation, {})
                                  .view(d_y.sizes())};
                        })};
  return true;
}

// weight, indices, padding_idx, scale_grad_by_freq, sparse. Adds the rows' gradients to that of the table; ATen makes a
// gradient of the table's size.
bool run_embedding(Stack& stack) {
  const at::Tensor table = stack[0].toTensor(), indices = stack[1].toTensor();
  const int64_t padding = stack[2].toInt();
  const bool is_plain = !stack[3].toBool() && !stack[4].toBool() && indices.scalar_type() == at::kLong;
  const bool fits = table.is_cpu() && indices.is_cpu() && fits_kernels(table) && table.dim() == 2 &&
                    table.scalar_type() == wide_type(table) && indices.numel() > 0;
  if (!is_plain || !fits || !needs_gradient(table)) return false;
  at::Tensor y;
  const at::Tensor rows = indices.flatten().contiguous();
  {
    const at::NoGradGuard no_grad;
    auto sizes = indices.sizes().vec();
    sizes.push_back(table.size(1));
    y = table.detach().index_select(0, rows).view(sizes);
  }
  stack = {with_own_backward(
      y, {}, {table}, {rows}, "Embedding",
      [padding](const at::Tensor& d_y, const SavedTensors& kept, const std::vector<at::Tensor>& sums) {
        at::Tensor gradients = as_rows(d_y);
        if (padding >= 0) gradients = gradients.masked_fill(kept[0].eq(padding).unsqueeze(1), 0);
        add_indexed_rows(sums[0], kept[0], gradients.contiguous());
        return std::vector<at::Tensor>();
      })};
  return true;
}

}  // namespace

OwnOperator own_operator(const std::string& name, const std::string& overload) {
  static const std::map<std::string, OwnOperator> operators = {{"aten::linear", run_linear},
                                                               {"aten::addmm", run_addmm},
                                                               {"aten::mm", run_matmul},
                                                               {"aten::matmul", run_matmul},
                                                               {"aten::layer_norm", run_layer_norm},
                                                               {"aten::gelu", run_gelu},
                                                               {"aten::embedding", run_embedding},
                                                               {"aten::_grouped_mm", run_grouped_product}};
  const auto found = operators.find(name);
  return found == operators.end() || !overload.empty() ? nullptr : found->second;
}

}  // namespace shardline
