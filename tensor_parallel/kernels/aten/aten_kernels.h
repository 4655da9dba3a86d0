// The functions of kernels.h in terms of ATen's operators: used for tensors on other devices, and in tests as the
// reference for the vectorised loops. Shapes and semantics are as in kernels.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <tuple>

#include "tensor_parallel/kernels/kernels.h"

namespace shardline::aten {

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon);
at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows);

std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double epsilon);
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                             const at::Tensor& weight, at::Tensor weight_grad, int64_t valid_rows);

at::Tensor bias_activation_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation);
at::Tensor bias_activation_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                    Activation activation, at::Tensor bias_grad);

at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows);
at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows, at::ScalarType branch);

void rotate_pairs_(at::Tensor x, const at::Tensor& table, const at::Tensor& position, bool back);

std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label);
void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale);

std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout,
                                                     const AttentionPattern& pattern = {});
at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout, const AttentionPattern& pattern = {});

// Adds the sum over rows of `gradient` to `total`; does nothing if `total` is undefined.
void add_column_sums(at::Tensor total, const at::Tensor& gradient);

}  // namespace shardline::aten
