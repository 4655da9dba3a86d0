// Products of a program with weights, computed by tensor_parallel/products.
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// The weight of a product: [outputs, inputs], as aten::linear takes it, or the other way round.
enum class WeightOrder { outputs_first, inputs_first };

// Whether own_linear computes what ATen's product of these tensors does. Under autocast, ATen converts tensors other
// than float64 to half precision.
bool is_own_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightOrder order);

// x [..., inputs] times the weight, plus bias [outputs] or undefined. In half precision, the gradients of weight and
// bias are sums in fp32 that are not rounded.
at::Tensor own_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightOrder order);

}  // namespace shardline
