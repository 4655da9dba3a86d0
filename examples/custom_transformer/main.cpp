// A transformer of one's own, written with torch::nn, as a program that has every command of shardline.
#include <shardline/models/graph/module_layers.h>
#include <shardline/shardline.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

namespace {

struct Sizes {
  int64_t words, positions, width, heads, blocks;
};

struct EmbeddingImpl : torch::nn::Module {
  explicit EmbeddingImpl(const Sizes& s) : words(s.words, s.width), positions(s.positions, s.width) {
    register_module("words", words);
    register_module("positions", positions);
  }
  torch::Tensor forward(const torch::Tensor& ids) {  // [batch, length] -> [batch, length, width]
    return words(ids) + positions(torch::arange(ids.size(1), ids.options()));
  }
  torch::nn::Embedding words, positions;
};
TORCH_MODULE(Embedding);

// A pre-norm block with a gated MLP.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Sizes& s)
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
TORCH_MODULE(Block);

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const Sizes& s) : norm(torch::nn::LayerNormOptions({s.width})), logits(s.width, s.words) {
    register_module("norm", norm);
    register_module("logits", logits);
  }
  torch::Tensor forward(const torch::Tensor& x) { return logits(norm(x)); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear logits;
};
TORCH_MODULE(Head);

// Called with model.config. Each module becomes a layer, and layers are placed on the stages.
shardline::ModuleModel my_transformer(const nlohmann::json& config) {
  const Sizes sizes{config.at("words"), config.at("positions"), config.at("width"), config.at("heads"),
                    config.at("blocks")};
  const auto make = [sizes] {
    torch::nn::Sequential all;
    all->push_back("embedding", Embedding(sizes));
    for (int64_t i = 0; i < sizes.blocks; ++i) all->push_back("block" + std::to_string(i), Block(sizes));
    all->push_back("head", Head(sizes));
    return all.ptr();
  };
  return {.vocab_size = sizes.words, .max_positions = sizes.positions, .modules = shardline::modules_of("model", make)};
}

}  // namespace

int main(int argc, char** argv) {
  shardline::Registry registry;
  registry.model("my-transformer", my_transformer);
  return shardline::run(argc, argv, registry);
}
