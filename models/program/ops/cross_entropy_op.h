// Cross entropy of a program's logits, computed by our kernels (tensor_parallel/kernels).
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// Whether own_cross_entropy_sum computes the sum of ATen's losses of these rows.
bool is_own_cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing);

// Throws a RunError for a target that is not a class, except on accelerators, where the host would have to wait.
// target: int64; rows with the target `ignored` are not counted.
void check_classes(const at::Tensor& target, int64_t ignored, int64_t classes);

// The sum of the losses of rows, a scalar. logits [rows, classes], target [rows] int64; rows with the target `ignored`
// are not counted. For the backward pass, the logits are kept instead of their softmax, and the gradient is written
// into their memory if no other tensor uses it. Checks the classes.
at::Tensor own_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target, int64_t ignored);

}  // namespace shardline
