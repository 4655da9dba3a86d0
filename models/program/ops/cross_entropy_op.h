// Cross entropy of a program's logits, computed by our kernels (tensor_parallel/kernels).
#pragma once
#include <ATen/core/Tensor.h>

namespace shardline {

// Whether own_cross_entropy_sum computes the sum of ATen's losses of these rows.
bool is_own_cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing);

// Throws a RunError for a target that is no class, except on accelerators, where the host would have to wait. target:
// int64, of which `ignored` is not counted.
void check_classes(const at::Tensor& target, int64_t ignored, int64_t classes);

// The sum of the losses of rows, a scalar. logits [rows, classes], target [rows] int64, of which `ignored` is not
// counted. Instead of their softmax, the logits are kept, and their memory becomes that of the gradient if no other
// tensor has it. Checks the classes.
at::Tensor own_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target, int64_t ignored);

}  // namespace shardline
