// The losses of small heads, whose logits are complete on the rank that has their row: logits are border rows [rows,
// labels] of `count` rows in total. Each function stores the sum and the weight of all rows in the context; in
// Mode::train it returns the loss sum times context.loss_scale, a scalar of at least fp32 with a backward, otherwise an
// undefined tensor. Everything is computed in at least fp32. Targets cover all rows; they are undefined in a dry run.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/model/layer.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

// Softmax cross entropy with context.label_smoothing. classes [count] int64, in [0, labels) or kNoLabel. Weight: number
// of rows with a class.
at::Tensor class_loss(const TensorParallel& tp, const at::Tensor& logits, int64_t count, const at::Tensor& classes,
                      MicrobatchContext& context);

// The squared error, averaged over labels. numbers [count] or [count, labels], floating. Weight: number of rows.
at::Tensor squared_loss(const TensorParallel& tp, const at::Tensor& logits, int64_t count, const at::Tensor& numbers,
                        MicrobatchContext& context);

// The binary cross entropy, averaged over labels. present [count, labels], floating, 0 or 1. Weight: number of rows.
at::Tensor binary_loss(const TensorParallel& tp, const at::Tensor& logits, int64_t count, const at::Tensor& present,
                       MicrobatchContext& context);

// logits [rows, 2] of each row of the microbatch as the first and as the last row of the answer. The loss is half the
// sum of two softmax cross entropies over the rows of a segment. Only segments that contain their answer count; their
// number is the weight.
at::Tensor answer_loss(const TensorParallel& tp, const at::Tensor& logits, MicrobatchContext& context);

// All logits on every rank, [count, labels] of at least fp32.
at::Tensor whole_logits(const TensorParallel& tp, const at::Tensor& logits, int64_t count);

}  // namespace shardline
