// The functions of kernels.h for tensors that our loops do not support.
#pragma once
#include <c10/core/DeviceType.h>

#include <optional>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline {

struct KernelTable {
  decltype(&shardline::layer_norm_forward) layer_norm_forward;
  decltype(&shardline::layer_norm_backward) layer_norm_backward;
  decltype(&shardline::rms_norm_forward) rms_norm_forward;
  decltype(&shardline::rms_norm_backward) rms_norm_backward;
  decltype(&shardline::bias_activation_forward) bias_activation_forward;
  decltype(&shardline::bias_activation_backward) bias_activation_backward;
  decltype(&shardline::bias_dropout_add_forward) bias_dropout_add_forward;
  decltype(&shardline::bias_dropout_backward) bias_dropout_backward;
  decltype(&shardline::rotate_pairs_) rotate_pairs_;
  decltype(&shardline::cross_entropy_stats) cross_entropy_stats;
  decltype(&shardline::cross_entropy_gradient_) cross_entropy_gradient_;
  decltype(&shardline::attention_forward) attention_forward;
  decltype(&shardline::attention_backward) attention_backward;
  // total [n] += the sum of the rows of x [rows, n], which may be strided; total has x's wide type.
  void (*add_column_sums)(at::Tensor total, const at::Tensor& x);
  // Computes the whole cross entropy for a vocabulary that is not split over ranks, and returns true; returns false if
  // it does not support the tensors. Labels are in [0, v), or negative for none. The sum of the losses and their number
  // are added to total [2], fp64. With a gradient_scale, the logits are replaced by the gradient times that scale. Null
  // if there is no such kernel.
  bool (*whole_cross_entropy_)(at::Tensor logits, const at::Tensor& label, at::Tensor total,
                               std::optional<double> gradient_scale) = nullptr;
};

// The table for the tensor's device; ATen's if the device has none.
const KernelTable& kernels_for(const at::Tensor& tensor);
// For tests: sets the table for tensors of a device, or for CPU tensors while use_kernels() disables our loops. Null
// restores the default.
void use_table(at::DeviceType device, const KernelTable* table);

}  // namespace shardline
