// The memory-bound parts of a transformer, fused and in the precision that training needs. Tensors are fp32, fp64, bf16
// or fp16; all arithmetic, statistics and gradients of parameters are fp32 (fp64 for fp64), and half-precision results
// are rounded once. With fp32_residual_addition the residual stream is fp32 while layers are in half precision; the
// functions below state where the two types may differ. CPU tensors use our vectorised loops, CUDA tensors our kernels
// (attention in half precision without dropout uses torch's flash attention). Tensors on other devices, and fp64 on
// GPUs, use ATen, which is also the reference in the tests. All tensors are contiguous unless stated otherwise.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

namespace shardline {

enum class KernelLibrary { automatic, aten };
// For tests: with `aten`, CPUs use the same operators as other devices. The default is `automatic`.
void use_kernels(KernelLibrary kernels);

// ---- layer norm over the last dimension; x, y, dx [rows, n], mean and rstd [rows]
// x and dx have the residual stream's type, y and dy that of weight and bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                                  const at::Tensor& bias, double epsilon);
// Returns dx; adds to weight_grad and bias_grad [n] (undefined: skipped), over the first `valid_rows` rows only.
at::Tensor layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& weight, at::Tensor weight_grad,
                               at::Tensor bias_grad, int64_t valid_rows);

// ---- RMS norm over the last dimension, x / sqrt(mean of x^2 + epsilon) * weight (Zhang & Sennrich 2019, arXiv
// 1910.07467); shapes and types as for the layer norm. On CPUs, ATen computes it.
std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const at::Tensor& x, const at::Tensor& weight,
                                                    double epsilon);  // y, rstd
// Returns dx; adds to weight_grad [n] (undefined: skipped), over the first `valid_rows` rows only.
at::Tensor rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                             const at::Tensor& weight, at::Tensor weight_grad, int64_t valid_rows);

// ---- activation(x + bias); x [rows, n], bias [n] or undefined
enum class Activation { gelu, gelu_tanh, relu, silu, tanh };
// HF's names: gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, silu, swish, tanh. Throws ConfigError.
Activation activation_from_name(const std::string& name);
at::Tensor bias_activation_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation);
// Returns the gradient of x; adds its column sums to bias_grad [n] (undefined: skipped).
at::Tensor bias_activation_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& bias,
                                    Activation activation, at::Tensor bias_grad);

// ---- dropout whose mask depends on the model, not on the layout (core/numbers/philox.h)
// Row i of a [rows, features] tensor is token k = first_token + i of the microbatch, at place places[k] of sample
// samples[k]. Element (place, feature) of a sample draws word place * features + feature of its stream. Rows beyond the
// microbatch's tokens are padding and pass unchanged.
struct DropoutRows {
  uint64_t seed = 0;
  uint32_t op = 0, step = 0;
  double probability = 0;      // of dropping an element; kept values are scaled by 1 / (1 - probability)
  at::Tensor samples, places;  // [tokens] int64 on the rows' device; like the members below, not needed without dropout
  int64_t first_token = 0, tokens = 0;
};
// residual + dropout(x + bias), in the residual's type; bias is [n] or undefined, residual has x's sizes or is
// undefined.
at::Tensor bias_dropout_add_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                    const DropoutRows& rows);
// The gradient of x, in x's type `branch`. Adds its column sums over valid rows to bias_grad (undefined: skipped).
// `valid_rows` as above.
at::Tensor bias_dropout_backward(const at::Tensor& dy, const DropoutRows& rows, at::Tensor bias_grad,
                                 int64_t valid_rows, at::ScalarType branch);

// ---- rotation of pairs of features, in place
// x [rows, heads, head_dim], rows may be strided: features 2i and 2i + 1 of each head, for the first 2 * pairs
// features, are rotated by the angle of row `position` and column i of table [2, positions, pairs] (cosines, sines; x's
// wide type), or in the opposite direction if `back`. position [rows] int64.
void rotate_pairs_(at::Tensor x, const at::Tensor& table, const at::Tensor& position, bool back);

// ---- softmax cross entropy over a vocabulary that may be split over ranks; logits [rows, v] of this rank's part
// Per row: the largest logit, the sum of exp(logit - largest), and the logit of the label (0 if the label, counted from
// this part's first entry, is not in [0, v)). Each [rows], fp32 or wider, even for half-precision logits.
std::tuple<at::Tensor, at::Tensor, at::Tensor> cross_entropy_stats(const at::Tensor& logits, const at::Tensor& label);
// In place: logits become (softmax - onehot(label)) * scale, given each row's log of the whole sum of exponentials.
// Rows whose scale is 0 (ignored labels) become 0. log_sum_exp, scale [rows]; label as above.
void cross_entropy_gradient_(at::Tensor logits, const at::Tensor& label, const at::Tensor& log_sum_exp,
                             const at::Tensor& scale);

// ---- attention core with dropout on the probabilities; q, k, v and results [batch, heads, length, head_dim], strided.
// Products, softmax and probabilities are fp32 (fp64 for fp64); half-precision results are rounded once.
// The keys that a query sees: those of its own segment; with `causal` only those up to its own place; with `window` > 0
// (which requires `causal`) only the last `window` of these.
struct AttentionPattern {
  bool causal = true;
  int64_t window = 0;
  // Empty: each sequence of the batch is one segment. Otherwise the batch is 1, and segment i ends before place ends[i]
  // of its sequence; the last one ends with the sequence.
  std::vector<int64_t> ends;
  bool operator==(const AttentionPattern&) const = default;
};
struct AttentionDropout {
  uint64_t seed = 0;
  uint32_t op = 0, step = 0;
  double probability = 0;
  at::Tensor samples;         // [segments] int64, on the device of q; not needed without dropout
  at::Tensor first_places;    // likewise; the place of each segment's first token in its sample; undefined: 0
  int64_t first_head = 0;     // this rank's first head among the model's
  int64_t max_positions = 0;  // the model's; the stride of the element counter
};
// The scores are (q k / divisor) * (scale * divisor): q k is divided before it is stored, which keeps stored scores in
// range and does not change the result (query_key_layer_scaling).
struct ScoreScale {
  ScoreScale(double scale_, double divisor_ = 1) : scale(scale_), divisor(divisor_) {}
  double scale, divisor;
};
// Element (head, query, key) of a sample draws word (head * max_positions + query) * max_positions + key, where query
// and key are places in the sample. Returns the output and the log of the sum of exponentials [batch, heads, length],
// which is fp32 or wider; probabilities are never kept.
// A query's result is NaN if one of its scores is NaN or +infinity, or if all are -infinity, as the definition of the
// softmax requires. Torch's own attention on CPUs returns 0 if all are -infinity or NaN.
std::tuple<at::Tensor, at::Tensor> attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                     const ScoreScale& scale, const AttentionDropout& dropout,
                                                     const AttentionPattern& pattern = {});
// The gradients of q, k and v side by side, as the previous layer uses them: [batch, length, 3, heads, head_dim].
at::Tensor attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& log_sum_exp, const ScoreScale& scale,
                              const AttentionDropout& dropout, const AttentionPattern& pattern = {});
// Views of such a tensor, each [batch, heads, length, head_dim].
std::array<at::Tensor, 3> parts_of_qkv(const at::Tensor& qkv);

}  // namespace shardline
