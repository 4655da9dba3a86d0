// A custom transformer, written with torch::nn, as a program that has every command of shardline.
#include <shardline/models/program/trace/traced_model.h>
#include <shardline/shardline.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

namespace {

struct Sizes {
  int64_t words, positions, width, heads, blocks;
};

// A pre-norm block with a gated MLP.
struct Block : torch::nn::Module {
  explicit Block(const Sizes& s)
      : heads(s.heads),
        norm1(torch::nn::LayerNormOptions({s.width})),
        norm2(torch::nn::LayerNormOptions({s.width})),
        qkv(s.width, 3 * s.width),
        out(s.width, s.width),
        gate(s.width, 2 * s.width),
        up(s.width, 2 * s.width),
        down(2 * s.width, s.width) {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("gate", gate);
    register_module("up", up);
    register_module("down", down);
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto parts = qkv(norm1(x)).view({x.size(0), x.size(1), 3, heads, -1}).permute({2, 0, 3, 1, 4});
    const auto mixed = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + out(mixed.transpose(1, 2).reshape(x.sizes()));
    const auto y = norm2(x);
    return x + down(torch::silu(gate(y)) * up(y));
  }
  int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, gate, up, down;
};

// Logits are products with the embedding table.
struct Transformer : torch::nn::Module {
  explicit Transformer(const Sizes& s)
      : words(s.words, s.width), positions(s.positions, s.width), norm(torch::nn::LayerNormOptions({s.width})) {
    register_module("words", words);
    register_module("positions", positions);
    register_module("blocks", blocks);
    for (int64_t i = 0; i < s.blocks; ++i) blocks->push_back(std::make_shared<Block>(s));
    register_module("norm", norm);
    torch::nn::init::normal_(words->weight, 0, 0.02);
  }
  torch::Tensor forward(const torch::Tensor& ids) {  // [batch, length] -> [batch, length, words]
    auto x = words(ids) + positions(at::arange(ids.size(1), ids.options()));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return torch::linear(norm(x), words->weight);
  }
  torch::nn::Embedding words, positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
};

// Called with model.config.
shardline::TracedModel my_transformer(const nlohmann::json& config) {
  const Sizes sizes{config.at("words"), config.at("positions"), config.at("width"), config.at("heads"),
                    config.at("blocks")};
  return {.vocab_size = sizes.words, .make = [sizes] {
            return shardline::traced_module(std::make_shared<Transformer>(sizes), &Transformer::forward);
          }};
}

}  // namespace

int main(int argc, char** argv) {
  shardline::Registry registry;
  registry.traced_model("my-transformer", my_transformer);
  return shardline::run(argc, argv, registry);
}
