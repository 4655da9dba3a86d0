// Functions that start the kernels of this folder. They take pointers to device memory, sizes and a stream, and do not
// depend on torch. tensor_parallel/kernels/kernels.h describes what they compute, in which types; rows are contiguous
// unless stated otherwise. Sums and statistics are fp32. Results depend only on the arguments, not on device or timing:
// atomic operations add no fp32 numbers, and the division of rows depends only on their number.
//
// `layer` and `residual` are the number types of a layer and of the residual stream. `parts` is room for fp32 sums per
// block of rows, whose size part_floats() returns.
#pragma once
#include <cstdint>

#include "core/cuda/launch_log.h"
#include "core/cuda/number.h"
#include "tensor_parallel/kernels/attention_limits.h"

namespace shardline::cuda {

// ---- layer norm; RMS norm (Zhang & Sennrich 2019, arXiv 1910.07467) if mean is null: x / sqrt(mean of x^2) *
// weight
struct NormForward {
  const void* x;              // [rows, n], in `residual`
  const void *weight, *bias;  // [n], in `layer`; bias null: none
  void* y;                    // [rows, n], in `layer`
  float *mean, *rstd;         // [rows]
  int64_t rows, n;
  float epsilon;
};
void norm_forward(const NormForward& a, Number layer, Number residual, Stream stream);

constexpr int64_t kWidestNorm = 16384;  // maximum n of norm_backward

struct NormBackward {
  const void* dy;                  // [rows, n], in `layer`
  const void* x;                   // [rows, n], in `residual`
  const float *mean, *rstd;        // [rows]
  const void* weight;              // [n], in `layer`
  void* dx;                        // [rows, n], in `residual`
  float *weight_grad, *bias_grad;  // [n], added to; null: not needed
  float* parts;                    // 2 * part_floats(rows, n)
  int64_t rows, n, valid_rows;
};
void norm_backward(const NormBackward& a, Number layer, Number residual, Stream stream);

// ---- activation(x + bias)
enum class ActivationKind { gelu, gelu_tanh, relu, silu, tanh };

struct BiasActivation {
  const void *x, *bias;  // [rows, n], [n]; bias null: none
  void* y;
  int64_t rows, n;
  ActivationKind kind;
};
void bias_activation(const BiasActivation& a, Number type, Stream stream);

struct BiasActivationBackward {
  const void *dy, *x, *bias;
  void* dx;
  float* bias_grad;  // [n], added to; null: not needed
  float* parts;      // part_floats(rows, n)
  int64_t rows, n;
  ActivationKind kind;
};
void bias_activation_backward(const BiasActivationBackward& a, Number type, Stream stream);

// ---- residual + dropout(x + bias)
// The rows' masks, as described by DropoutRows (kernels.h); samples, places: [tokens] on the device.
struct RowDropout {
  uint64_t seed;
  uint32_t op, step;
  double probability;
  const int64_t *samples, *places;
  int64_t first_token, tokens;
};

struct BiasDropoutAdd {
  const void *x, *bias, *residual;  // [rows, n], [n], [rows, n]; bias, residual null: none
  void* y;                          // in `residual`
  int64_t rows, n;
  RowDropout dropout;
};
void bias_dropout_add(const BiasDropoutAdd& a, Number layer, Number residual, Stream stream);

struct BiasDropoutBackward {
  const void* dy;    // in `residual`
  void* dx;          // in `layer`
  float* bias_grad;  // [n], added to; null: not needed
  float* parts;      // part_floats(rows, n)
  int64_t rows, n, valid_rows;
  RowDropout dropout;
};
void bias_dropout_backward(const BiasDropoutBackward& a, Number layer, Number residual, Stream stream);

// ---- rotation of pairs of features, in place
struct RotatePairs {
  void* x;                  // [rows, heads, head_dim], rows row_stride apart
  const float* table;       // [2, positions, pairs]: cosines, sines
  const int64_t* position;  // [rows]
  int64_t rows, heads, head_dim, row_stride, positions, pairs;
  bool back;
};
void rotate_pairs(const RotatePairs& a, Number type, Stream stream);

// ---- softmax cross entropy; logits [rows, v], rows row_stride apart; label [rows], counted from the first logit
struct CrossEntropyStats {
  const void* logits;
  const int64_t* label;
  float *largest, *sum, *picked;  // [rows]; picked: 0 if the label is not in [0, v)
  int64_t rows, v, row_stride;
};
void cross_entropy_stats(const CrossEntropyStats& a, Number type, Stream stream);

struct CrossEntropyGradient {
  void* logits;  // replaced by (softmax - onehot(label)) * scale; 0 if the row's scale is 0
  const int64_t* label;
  const float *log_sum_exp, *scale;  // [rows]
  int64_t rows, v, row_stride;
};
void cross_entropy_gradient(const CrossEntropyGradient& a, Number type, Stream stream);

// Computes loss and gradient at once, for a vocabulary that is not split. Labels are in [0, v) or negative; a row with
// a negative label has neither loss nor gradient.
struct WholeCrossEntropy {
  void* logits;  // replaced by the gradient if one is needed
  const int64_t* label;
  float* loss;    // [rows]
  double* total;  // [2]; the sum of the losses and the number of rows with a loss are added
  float scale;    // multiplies the gradient
  int64_t rows, v, row_stride;
  bool with_gradient;
};
void whole_cross_entropy(const WholeCrossEntropy& a, Number type, Stream stream);

// ---- causal attention with dropout on the probabilities
// Element (b, h, i, d) is at data[b * batch_stride + h * head_stride + i * token_stride + d]. Kernels do not write to
// their inputs, although this pointer is not const.
struct HeadRows {
  void* data;
  int64_t batch_stride, head_stride, token_stride;
};

struct AttentionCase {
  int64_t batch, heads, length, head_dim;  // head_dim at most kWidestHead; batch * heads at most kMostHeads
  float scale;                             // multiplies the products of queries and keys
  uint64_t seed;
  uint32_t op, step;
  double probability;      // of dropping an element; if 0, the following are not needed
  const int64_t* samples;  // [batch] on the device
  int64_t first_head, max_positions;
};
struct AttentionForward {
  HeadRows q, k, v, out;
  float* log_sum_exp;  // [batch, heads, length]
};
// If the tensors are in half precision, probabilities are rounded to it before they are multiplied with the values; all
// sums are fp32.
void attention_forward(const AttentionCase& c, const AttentionForward& a, Number type, Stream stream);

struct AttentionBackward {
  HeadRows q, k, v, out, d_out, dq, dk, dv;
  const float* log_sum_exp;
  float* along;  // room for [batch, heads, length]: d_out * out, summed over a head's features
};
void attention_backward(const AttentionCase& c, const AttentionBackward& a, Number type, Stream stream);

// ---- sums over rows
int64_t part_floats(int64_t rows, int64_t n);

struct ColumnSums {
  const void* x;  // [rows, n], rows row_stride apart
  float* total;   // [n], added to
  int64_t rows, n, row_stride;
};
void add_column_sums(const ColumnSums& a, Number type, Stream stream);

}  // namespace shardline::cuda
