// Modules that declare how tensor parallelism divides them. Outside shardline they are ordinary torch modules with
// whole weights. When a model that contains them is traced (Registry::traced_model), the T ranks divide exactly the
// dimensions that they declare, instead of those that the analysis would choose; a model in which that is impossible is
// refused with the reason. smp_options.tensor_parallel_layers may still keep a unit whole.
//
// Weights are initialised from a normal distribution as a function of a seed and of the element's position, like those
// of the built-in models; biases start at zero. The seed comes from torch's CPU generator: modules constructed in the
// same order under the same seed have the same values on any layout.
//
// Constructors throw a c10::Error for invalid sizes, forward for inputs whose sizes do not fit.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace shardline::nn {

struct ColumnLinearOptions {
  ColumnLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
  // If true, every rank gets all columns of the result; otherwise, the next module must compute with the rank's own
  // columns.
  TORCH_ARG(bool, gather_output) = false;
  TORCH_ARG(double, init_std) = 0.02;
};

// [..., in_features] -> [..., out_features]: input * weight^T + bias. The ranks divide the columns of the result.
class ColumnLinearImpl : public torch::nn::Cloneable<ColumnLinearImpl> {
 public:
  explicit ColumnLinearImpl(const ColumnLinearOptions& options_);
  ColumnLinearImpl(int64_t in_features, int64_t out_features)
      : ColumnLinearImpl(ColumnLinearOptions(in_features, out_features)) {}
  void reset() override;
  at::Tensor forward(const at::Tensor& input);

  ColumnLinearOptions options;
  at::Tensor weight;  // [out_features, in_features]
  at::Tensor bias;    // [out_features]; undefined without one
};
TORCH_MODULE(ColumnLinear);

struct RowLinearOptions {
  RowLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(double, init_std) = 0.02;
};

// [..., in_features] -> [..., out_features]. The ranks divide the columns of the input, such as those of a
// ColumnLinear; their results are added, and then the bias.
class RowLinearImpl : public torch::nn::Cloneable<RowLinearImpl> {
 public:
  explicit RowLinearImpl(const RowLinearOptions& options_);
  RowLinearImpl(int64_t in_features, int64_t out_features)
      : RowLinearImpl(RowLinearOptions(in_features, out_features)) {}
  void reset() override;
  at::Tensor forward(const at::Tensor& input);

  RowLinearOptions options;
  at::Tensor weight;  // [out_features, in_features]
  at::Tensor bias;    // [out_features]; undefined without one
};
TORCH_MODULE(RowLinear);

struct VocabEmbeddingOptions {
  VocabEmbeddingOptions(int64_t words, int64_t features) : words_(words), features_(features) {}
  TORCH_ARG(int64_t, words);
  TORCH_ARG(int64_t, features);
  TORCH_ARG(double, init_std) = 0.02;
};

// The embedding table of the model's vocabulary: ids [...] below `words` -> [..., features]. The words are split over
// the ranks. To tie a head to it, use at::linear(x, table->weight).
class VocabEmbeddingImpl : public torch::nn::Cloneable<VocabEmbeddingImpl> {
 public:
  explicit VocabEmbeddingImpl(const VocabEmbeddingOptions& options_);
  VocabEmbeddingImpl(int64_t words, int64_t features) : VocabEmbeddingImpl(VocabEmbeddingOptions(words, features)) {}
  void reset() override;
  at::Tensor forward(const at::Tensor& ids);

  VocabEmbeddingOptions options;
  at::Tensor weight;  // [words, features]
};
TORCH_MODULE(VocabEmbedding);

struct AttentionOptions {
  AttentionOptions(int64_t features, int64_t heads) : features_(features), heads_(heads) {}
  TORCH_ARG(int64_t, features);
  TORCH_ARG(int64_t, heads);
  TORCH_ARG(int64_t, key_heads) = 0;      // of keys and values, a divisor of heads; 0: as many as heads
  TORCH_ARG(int64_t, head_features) = 0;  // 0: features / heads
  TORCH_ARG(bool, causal) = false;
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(double, dropout) = 0;  // of the probabilities, in training
  TORCH_ARG(double, init_std) = 0.02;
};

// Attention with its four products. The ranks divide the heads; if there are fewer key heads than ranks, every rank has
// the keys and values of all of them.
class AttentionImpl : public torch::nn::Cloneable<AttentionImpl> {
 public:
  explicit AttentionImpl(const AttentionOptions& options_);
  AttentionImpl(int64_t features, int64_t heads) : AttentionImpl(AttentionOptions(features, heads)) {}
  void reset() override;
  // x and result: [batch, length, features]. source: the input of keys and values, [batch, source length, features];
  // undefined: x. mask: bool, true where a query sees a key, or numbers that are added, [batch or 1, heads or 1,
  // length, source length]; undefined: all are seen, or the earlier ones if `causal`. A causal attention takes no mask.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& source = {}, const at::Tensor& mask = {});

  AttentionOptions options;
  torch::nn::Linear q = nullptr, k = nullptr, v = nullptr, out = nullptr;
};
TORCH_MODULE(Attention);

struct CrossEntropyOptions {
  TORCH_ARG(int64_t, ignore_index) = -100;  // the label of rows that do not count
};

// The mean cross entropy of rows: logits [..., classes], labels [...] int64 -> a scalar. As the model's loss, it is
// computed from the classes that each rank has, such as those of a table that is a VocabEmbedding. Rows of language
// models predict the next token, so the last row of logits and the first label have no partner: pass
// logits.narrow(1, 0, length - 1) and labels.narrow(1, 1, length - 1).
class CrossEntropyImpl : public torch::nn::Cloneable<CrossEntropyImpl> {
 public:
  explicit CrossEntropyImpl(const CrossEntropyOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  at::Tensor forward(const at::Tensor& logits, const at::Tensor& labels);

  CrossEntropyOptions options;
};
TORCH_MODULE(CrossEntropy);

}  // namespace shardline::nn
