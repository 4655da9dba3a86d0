// Norms, bias + activation, bias + dropout + residual: the ops between the products. They use kernels.h, which states
// what is computed in which type. In half precision, all tensors have the parameters' type. The exception is
// fp32_residual_addition: then the residual stream (x of norms, residual and result of bias_dropout_add, the border
// between layers) and its gradient are fp32, and the result of a norm is again in half precision.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// x: border rows [rows, n]; the result has the type of weight and bias. Under sequence parallelism, the gradients of
// weight and bias are this rank's part.
at::Tensor layer_norm(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& weight, Parameter& bias,
                      double epsilon);

// The RMS norm, as above.
at::Tensor rms_norm(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter& weight, double epsilon);

// activation(x + bias); x [tokens, n of this rank], bias of the same n.
at::Tensor bias_activation(const at::Tensor& x, Parameter& bias, Activation activation);

// residual + dropout(x + bias), in the residual's type; all are border rows. `site` numbers the dropouts of a layer (0
// to 7).
at::Tensor bias_dropout_add(const TensorParallel& tp, const at::Tensor& x, int64_t tokens, Parameter* bias,
                            const at::Tensor& residual, const DropoutRows& rows);

// The sample and position of each of this rank's border rows, and the stream of dropout `site` of layer `layer`. The
// probability is 0 outside training.
DropoutRows dropout_rows(const TensorParallel& tp, const MicrobatchContext& context, int64_t layer, int site,
                         double probability);
uint32_t dropout_op(int64_t layer, int site);

// How many of this rank's border rows are tokens, and which tokens of the microbatch they are.
int64_t valid_border_rows(const TensorParallel& tp, int64_t tokens);
Range tokens_of_rows(const TensorParallel& tp, int64_t tokens);

// The position of each border row that is a token [valid rows].
at::Tensor positions_of_rows(const TensorParallel& tp, const Microbatch& batch);

}  // namespace shardline
