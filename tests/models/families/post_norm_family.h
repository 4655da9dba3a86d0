// A family used only in tests: like BERT's, its blocks normalise what they add to the residual stream; the first ones
// may be frozen. It is one file without cost formulas; register_post_norm_family() corresponds to a family's line in
// families.cpp.
#pragma once
#include <cmath>
#include <memory>

#include "core/error.h"
#include "models/families/causal_ends.h"
#include "models/families/families.h"
#include "models/families/transformer_block.h"

namespace shardline {

struct PostNormConfig : TransformerConfig {
  PostNormConfig() : TransformerConfig{.position_table = true} {}
  int64_t frozen_blocks = 0;
};

// y = norm(x + attention(x)), then norm(y + mlp(y))
class PostNormBlock : public TransformerBlock {
 public:
  enum { kQkv, kQkvBias, kOut, kOutBias, kNorm1, kNorm1Bias, kFc, kFcBias, kProj, kProjBias, kNorm2, kNorm2Bias };

  PostNormBlock(const PostNormConfig& config, BlockSplit split, int64_t block, const LayerBuild& build)
      : TransformerBlock(config, split, kQkv, block, 1 / std::sqrt(static_cast<double>(config.head_dim())), build) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto& x = input[0];  // [rows, hidden]
    const auto attended = attention(x, context, param(kQkv), &param(kQkvBias), param(kOut));
    const auto middle =
        normed(added(attended, &param(kOutBias), x, context, 1), context, param(kNorm1), param(kNorm1Bias));
    const auto wide = mlp(middle, context, param(kFc), param(kFcBias), param(kProj));
    return {normed(added(wide, &param(kProjBias), middle, context, 2), context, param(kNorm2), param(kNorm2Bias))};
  }
};

inline LayerSpec post_norm_block(const PostNormConfig& c, const SpecMaker& make, int64_t i) {
  const int64_t h = c.n_embd, n = c.n_head, d = c.head_dim(), inner = c.inner();
  const std::string hf = cat("encoder.layer.", i, ".");
  LayerSpec layer{.name = cat("h.", i)};
  const BlockSplit split = describe_block(layer, c, make);
  const SplitUnit attn = layer.units[0], mlp = layer.units[1];
  const auto linear = [&](const SplitUnit& unit, const std::string& name, std::vector<int64_t> shape, int split_dim) {
    ParamSource source{.tensor = hf + name};
    return make.of(unit, make.linear(name, std::move(shape), c.initializer_range, {source}), split_dim);
  };
  const auto norm1 = make.norm("norm1", hf + "norm1"), norm2 = make.norm("norm2", hf + "norm2");
  layer.params = {linear(attn, "attn.qkv.weight", {3, n, d, h}, 1),
                  make.of(attn, make.column_bias("attn.qkv.bias", {3, n, d}, hf + "attn.qkv.bias"), 1),
                  linear(attn, "attn.out.weight", {h, n, d}, 1),
                  make.row_bias("attn.out.bias", hf + "attn.out.bias"),
                  norm1[0],
                  norm1[1],
                  linear(mlp, "mlp.fc.weight", {inner, h}, 0),
                  make.of(mlp, make.column_bias("mlp.fc.bias", {inner}, hf + "mlp.fc.bias"), 0),
                  linear(mlp, "mlp.proj.weight", {h, inner}, 1),
                  make.row_bias("mlp.proj.bias", hf + "mlp.proj.bias"),
                  norm2[0],
                  norm2[1]};
  layer.params[PostNormBlock::kQkvBias].deferred = true;  // added with its weight's
  for (auto& param : layer.params) param.trainable = i >= c.frozen_blocks;
  layer.build = [c, split, i](const LayerBuild& build) { return std::make_unique<PostNormBlock>(c, split, i, build); };
  return layer;
}

inline PostNormConfig post_norm_config(HfConfigReader& read) {
  PostNormConfig c;
  read_transformer_config(read, c);
  read.size("frozen_blocks", nullptr, c.frozen_blocks, /*null=*/0);
  return c;
}

inline ModelSpec post_norm_spec(const PostNormConfig& c, const HeadChoice&, bool sequence_parallel,
                                const SplitChoices& choices) {
  const SpecMaker make{c.n_embd, c.initializer_range, sequence_parallel, choices};
  ModelSpec spec{.family = "post_norm",
                 .variant = variant_of(c),
                 .layers = {causal_embedding(c, make)},
                 .vocab_size = c.vocab_size,
                 .max_positions = c.n_positions};
  for (int64_t i = 0; i < c.n_layer; ++i) spec.layers.push_back(post_norm_block(c, make, i));
  spec.layers.push_back(causal_head(c, make));
  return spec;
}

inline void register_post_norm_family() {
  add_family("post_norm", family_of({{HeadChoice::Kind::causal_lm, ""}}, post_norm_config, post_norm_spec));
}

}  // namespace shardline
