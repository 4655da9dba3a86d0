// A small transformer as a user would write it: plain torch::nn modules in a Sequential.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "models/graph/module_layers.h"

namespace shardline::user {

inline constexpr int64_t kHidden = 12, kVocabulary = 31, kPositions = 8;

struct Words : torch::nn::Module {
  Words() : words(kVocabulary, kHidden), positions(kPositions, kHidden) {
    register_module("words", words);
    register_module("positions", positions);
  }
  at::Tensor forward(const at::Tensor& ids) { return words(ids) + positions(at::arange(ids.size(1), ids.options())); }
  torch::nn::Embedding words, positions;
};

struct Attention : torch::nn::Module {
  Attention() : norm(torch::nn::LayerNormOptions({kHidden})), in(kHidden, 3 * kHidden), out(kHidden, kHidden) {
    register_module("norm", norm);
    register_module("in", in);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto heads = in(norm(x)).view({x.size(0), x.size(1), 3, 3, kHidden / 3}).permute({2, 0, 3, 1, 4});
    const auto mixed = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    return x + out(mixed.transpose(1, 2).reshape(x.sizes()));
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear in, out;
};

// Computes logits with the embedding's own table.
struct Words2Logits : torch::nn::Module {
  explicit Words2Logits(at::Tensor words) { weight = register_parameter("weight", std::move(words)); }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight); }
  at::Tensor weight;
};

// 0 words, 1 attention, 2 to 5 a perceptron, 6 attention, 7 linear, 8 logits.
inline std::shared_ptr<torch::nn::SequentialImpl> small_transformer() {
  const auto words = std::make_shared<Words>();
  torch::nn::Sequential all(
      words, std::make_shared<Attention>(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHidden})),
      torch::nn::Linear(kHidden, 20), torch::nn::GELU(), torch::nn::Linear(20, kHidden), std::make_shared<Attention>(),
      torch::nn::Linear(kHidden, kHidden), std::make_shared<Words2Logits>(words->words->weight));
  return all.ptr();
}

inline ModuleModel small_model() {
  return {.name = "small",
          .vocab_size = kVocabulary,
          .max_positions = kPositions,
          .modules = modules_of("net", small_transformer),
          .microbatch = 2,
          .length = kPositions};
}

}  // namespace shardline::user
