#include "models/families/gpt2.h"

#include <cmath>

#include "core/error.h"
#include "models/families/causal_ends.h"
#include "models/families/transformer_block.h"
#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {

// x + attention(norm(x)), then + mlp(norm(.))
class Gpt2Block : public TransformerBlock {
 public:
  enum {
    kNorm1,
    kNorm1Bias,
    kQkv,
    kQkvBias,
    kOut,
    kOutBias,
    kNorm2,
    kNorm2Bias,
    kFc,
    kFcBias,
    kProj,
    kProjBias,
  };

  Gpt2Block(const Gpt2Config& config, BlockSplit split, int64_t block, const LayerBuild& build)
      : TransformerBlock(config, split, kQkv, block, scale(config, block), build) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto& x = input[0];  // [rows, hidden]
    const auto attended = attention(normed(x, context, param(kNorm1), param(kNorm1Bias)), context, param(kQkv),
                                    &param(kQkvBias), param(kOut));
    const auto middle = added(attended, &param(kOutBias), x, context, 1);
    const auto from_mlp = mlp(normed(middle, context, param(kNorm2), param(kNorm2Bias)), context, param(kFc),
                              param(kFcBias), param(kProj));
    return {added(from_mlp, &param(kProjBias), middle, context, 2)};
  }

 private:
  static double scale(const Gpt2Config& c, int64_t block) {
    return (c.scale_attn_weights ? 1 / std::sqrt(c.head_dim()) : 1.0) /
           (c.scale_attn_by_inverse_layer_idx ? block + 1.0 : 1.0);
  }
};

// HF stores a Conv1D weight with inputs first, as file_shape; view and permute turn it into the logical weight.
std::vector<ParamSource> conv1d(const std::string& hf, std::vector<int64_t> file_shape, std::vector<int64_t> view,
                                std::vector<int64_t> permute) {
  return {{hf, std::move(view), std::move(permute), {}, std::move(file_shape)}};
}

LayerSpec gpt2_block(const Gpt2Config& c, const SpecMaker& make, int64_t i) {
  const std::string hf = cat("transformer.h.", i, ".");
  const int64_t h = c.n_embd, n = c.n_head, d = c.head_dim(), inner = c.inner();
  // The initial weights that feed the residual stream are smaller (GPT-2 paper, 2.3).
  const double std = c.initializer_range, residual_std = std / std::sqrt(2.0 * c.n_layer);
  LayerSpec layer{.name = cat("h.", i)};
  const BlockSplit split = describe_block(layer, c, make);
  const SplitUnit attn = layer.units[0], mlp = layer.units[1];
  const auto add = [&](std::vector<ParamSpec> params) {
    layer.params.insert(layer.params.end(), params.begin(), params.end());
  };
  add(make.norm("ln_1", hf + "ln_1"));
  add({make.of(attn,
               make.linear("attn.qkv.weight", {3, n, d, h}, std,
                           conv1d(hf + "attn.c_attn.weight", {h, 3 * h}, {h, 3, n, d}, {1, 2, 3, 0})),
               1),
       make.of(attn, make.column_bias("attn.qkv.bias", {3, n, d}, hf + "attn.c_attn.bias"), 1),
       make.of(attn,
               make.linear("attn.out.weight", {h, n, d}, residual_std,
                           conv1d(hf + "attn.c_proj.weight", {h, h}, {n, d, h}, {2, 0, 1})),
               1),
       make.row_bias("attn.out.bias", hf + "attn.c_proj.bias")});
  add(make.norm("ln_2", hf + "ln_2"));
  add({make.of(mlp,
               make.linear("mlp.fc.weight", {inner, h}, std,
                           conv1d(hf + "mlp.c_fc.weight", {h, inner}, {h, inner}, {1, 0})),
               0),
       make.of(mlp, make.column_bias("mlp.fc.bias", {inner}, hf + "mlp.c_fc.bias"), 0),
       make.of(mlp,
               make.linear("mlp.proj.weight", {h, inner}, residual_std,
                           conv1d(hf + "mlp.c_proj.weight", {inner, h}, {inner, h}, {1, 0})),
               1),
       make.row_bias("mlp.proj.bias", hf + "mlp.c_proj.bias")});
  layer.params[Gpt2Block::kQkvBias].deferred = true;  // its gradient comes with the weight's, fc's from the activation
  layer.ignored_tensors = {hf + "attn.bias", hf + "attn.masked_bias"};
  layer.build = [c, split, i](const LayerBuild& build) { return std::make_unique<Gpt2Block>(c, split, i, build); };
  return layer;
}

}  // namespace

HeadClasses gpt2_heads() {
  return {{HeadChoice::Kind::causal_lm, "GPT2LMHeadModel"},
          {HeadChoice::Kind::sequence_classification, "GPT2ForSequenceClassification"},
          {HeadChoice::Kind::token_classification, "GPT2ForTokenClassification"},
          {HeadChoice::Kind::question_answering, "GPT2ForQuestionAnswering"}};
}

Gpt2Config gpt2_config(HfConfigReader& read) {
  Gpt2Config c;
  read_transformer_config(read, c);
  read_causal_heads(read, c);
  read.flag("scale_attn_weights", c.scale_attn_weights);
  read.flag("scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx);
  bool cross_attention = false;
  read.flag("add_cross_attention", cross_attention);
  if (cross_attention) read.complain({"add_cross_attention"}, "must be false: this is a decoder without an encoder");
  read.accept_only("n_ctx", {c.n_positions}, "set n_positions; n_ctx is its old name");
  read.accept_only("reorder_and_upcast_attn", {false}, "set training.attention_in_fp32");
  return c;
}

ModelSpec gpt2_spec(const Gpt2Config& config, const HeadChoice& head, bool sequence_parallel,
                    const SplitChoices& choices) {
  const SpecMaker make{config.n_embd, config.initializer_range, sequence_parallel, choices};
  return causal_spec("gpt2", config, head, make, [&](int64_t i) { return gpt2_block(config, make, i); });
}

}  // namespace shardline
