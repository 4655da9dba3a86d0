#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "core/model/parameter_init.h"
#include "include/shardline/nn.h"

namespace shardline::nn {
namespace {

using at::Tensor;

// Fills the weight with numbers of this standard deviation, from a seed that torch's generator gives.
void draw(const Tensor& weight, double deviation) {
  const at::NoGradGuard no_grad;
  const int64_t seed = at::empty({1}, at::kLong).random_().item<int64_t>();
  const ParamSpec spec{.name = "weight", .shape = weight.sizes().vec(), .init = {Init::Kind::normal, deviation}};
  Parameter parameter{.name = spec.name, .spec = &spec, .value = weight.detach()};
  init_parameter(parameter, 0, seed, 0, 1);
}

Tensor drawn(at::IntArrayRef sizes, double deviation) {
  const Tensor weight = at::empty(sizes);
  draw(weight, deviation);
  return weight;
}

Tensor product(const Tensor& input, const Tensor& weight, const Tensor& bias, const char* name) {
  TORCH_CHECK(input.dim() > 0 && input.size(-1) == weight.size(1), name, " takes [..., ", weight.size(1), "]; got ",
              input.sizes());
  return at::linear(input, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

void check_sizes(const char* name, int64_t first, int64_t second) {
  TORCH_CHECK(first > 0 && second > 0, name, " has the sizes ", first, " and ", second, "; give at least 1");
}

}  // namespace

ColumnLinearImpl::ColumnLinearImpl(const ColumnLinearOptions& options_) : options(options_) {
  check_sizes("shardline::nn::ColumnLinear", options.in_features(), options.out_features());
  ColumnLinearImpl::reset();
}

void ColumnLinearImpl::reset() {
  weight = register_parameter("weight", drawn({options.out_features(), options.in_features()}, options.init_std()));
  if (options.bias()) bias = register_parameter("bias", at::zeros({options.out_features()}));
}

Tensor ColumnLinearImpl::forward(const Tensor& input) {
  return product(input, weight, bias, "shardline::nn::ColumnLinear");
}

RowLinearImpl::RowLinearImpl(const RowLinearOptions& options_) : options(options_) {
  check_sizes("shardline::nn::RowLinear", options.in_features(), options.out_features());
  RowLinearImpl::reset();
}

void RowLinearImpl::reset() {
  weight = register_parameter("weight", drawn({options.out_features(), options.in_features()}, options.init_std()));
  if (options.bias()) bias = register_parameter("bias", at::zeros({options.out_features()}));
}

Tensor RowLinearImpl::forward(const Tensor& input) {
  return product(input, weight, bias, "shardline::nn::RowLinear");
}

VocabEmbeddingImpl::VocabEmbeddingImpl(const VocabEmbeddingOptions& options_) : options(options_) {
  check_sizes("shardline::nn::VocabEmbedding", options.words(), options.features());
  VocabEmbeddingImpl::reset();
}

void VocabEmbeddingImpl::reset() {
  weight = register_parameter("weight", drawn({options.words(), options.features()}, options.init_std()));
}

Tensor VocabEmbeddingImpl::forward(const Tensor& ids) {
  return at::embedding(weight, ids);
}

AttentionImpl::AttentionImpl(const AttentionOptions& options_) : options(options_) {
  check_sizes("shardline::nn::Attention", options.features(), options.heads());
  if (options.key_heads() == 0) options.key_heads(options.heads());
  TORCH_CHECK(options.key_heads() > 0 && options.heads() % options.key_heads() == 0, "shardline::nn::Attention has ",
              options.heads(), " heads and ", options.key_heads(), " key heads; key_heads must divide heads");
  TORCH_CHECK(options.head_features() > 0 || options.features() % options.heads() == 0, "shardline::nn::Attention has ",
              options.features(), " features and ", options.heads(), " heads; heads must divide features, or set ",
              "head_features");
  if (options.head_features() == 0) options.head_features(options.features() / options.heads());
  AttentionImpl::reset();
}

void AttentionImpl::reset() {
  const int64_t features = options.features(), of_queries = options.heads() * options.head_features(),
                of_keys = options.key_heads() * options.head_features();
  const auto linear = [&](const char* name, int64_t from, int64_t to) {
    torch::nn::Linear made(torch::nn::LinearOptions(from, to).bias(options.bias()));
    draw(made->weight, options.init_std());
    const at::NoGradGuard no_grad;
    if (made->bias.defined()) made->bias.zero_();
    return register_module(name, made);
  };
  q = linear("q", features, of_queries);
  k = linear("k", features, of_keys);
  v = linear("v", features, of_keys);
  out = linear("out", of_queries, features);
}

Tensor AttentionImpl::forward(const Tensor& x, const Tensor& source, const Tensor& mask) {
  const Tensor& of = source.defined() ? source : x;
  for (const Tensor& each : {x, of})
    TORCH_CHECK(each.dim() == 3 && each.size(2) == options.features(),
                "shardline::nn::Attention takes [batch, length, ", options.features(), "]; got ", each.sizes());
  TORCH_CHECK(!options.causal() || !mask.defined(),
              "a causal shardline::nn::Attention takes no mask; leave causal out and put it into the mask");
  const auto by_head = [](const Tensor& y, int64_t heads) {
    return y.view({y.size(0), y.size(1), heads, -1}).transpose(1, 2);
  };
  const Tensor mixed = at::scaled_dot_product_attention(
      by_head(q(x), options.heads()), by_head(k(of), options.key_heads()), by_head(v(of), options.key_heads()),
      mask.defined() ? std::optional(mask) : std::nullopt, is_training() ? options.dropout() : 0.0, options.causal(),
      {},
      /*enable_gqa=*/options.key_heads() != options.heads());
  return out(mixed.transpose(1, 2).flatten(2));
}

Tensor CrossEntropyImpl::forward(const Tensor& logits, const Tensor& labels) {
  TORCH_CHECK(logits.dim() == labels.dim() + 1 && logits.dim() > 1,
              "shardline::nn::CrossEntropy takes logits [..., classes] and labels [...]; got ", logits.sizes(), " and ",
              labels.sizes());
  const bool are_rows = logits.dim() == 2;
  return at::cross_entropy_loss(are_rows ? logits : logits.flatten(0, -2), are_rows ? labels : labels.flatten(), {},
                                at::Reduction::Mean, options.ignore_index());
}

}  // namespace shardline::nn
