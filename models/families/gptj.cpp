#include "models/families/gptj.h"

#include <cmath>
#include <memory>

#include "core/error.h"
#include "models/families/causal_ends.h"
#include "models/families/transformer_block.h"
#include "models/files/hf_config_reader.h"
#include "tensor_parallel/ops/rotary.h"

namespace shardline {
namespace {

// x + attention(n) + mlp(n), n = norm(x)
class GptjBlock : public TransformerBlock {
 public:
  enum { kNorm, kNormBias, kQkv, kOut, kFc, kFcBias, kProj, kProjBias };

  GptjBlock(const GptjConfig& config, BlockSplit split, int64_t block, std::shared_ptr<const RotaryTable> table,
            const LayerBuild& build)
      : TransformerBlock(config, split, kQkv, block, 1 / std::sqrt(config.head_dim()), build),
        table_(std::move(table)) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto& x = input[0];  // [rows, hidden]
    const auto n = normed(x, context, param(kNorm), param(kNormBias));
    const auto attended = attention(n, context, param(kQkv), nullptr, param(kOut));
    const auto middle = added(attended, nullptr, x, context, 1);
    const auto from_mlp = mlp(n, context, param(kFc), param(kFcBias), param(kProj));
    return {added(from_mlp, &param(kProjBias), middle, context, 2)};
  }

 protected:
  at::Tensor with_rotary(const TensorParallel& tp, const at::Tensor& qkv, const Microbatch& batch) const override {
    return rotated(tp, qkv, batch, config_.head_dim(), table_);
  }

 private:
  std::shared_ptr<const RotaryTable> table_;
};

LayerSpec gptj_block(const GptjConfig& c, const SpecMaker& make, int64_t i,
                     const std::shared_ptr<const RotaryTable>& table) {
  const std::string hf = cat("transformer.h.", i, ".");
  const int64_t h = c.n_embd, n = c.n_head, d = c.head_dim(), inner = c.inner();
  const double std = c.initializer_range;
  LayerSpec layer{.name = cat("h.", i)};
  const BlockSplit split = describe_block(layer, c, make);
  const SplitUnit attn = layer.units[0], mlp = layer.units[1];
  layer.params = make.norm("ln_1", hf + "ln_1");
  for (const auto& param :
       {make.of(attn, make.linear("attn.qkv.weight", {3, n, d, h}, std, qkv_sources(hf + "attn.", n, d)), 1),
        make.of(attn,
                make.linear("attn.out.weight", {h, n, d}, std, {torch_linear(hf + "attn.out_proj.weight", {h, h})}), 1),
        make.of(mlp, make.linear("mlp.fc.weight", {inner, h}, std, {torch_linear(hf + "mlp.fc_in.weight", {inner, h})}),
                0),
        make.of(mlp, make.column_bias("mlp.fc.bias", {inner}, hf + "mlp.fc_in.bias"), 0),
        make.of(mlp,
                make.linear("mlp.proj.weight", {h, inner}, std, {torch_linear(hf + "mlp.fc_out.weight", {h, inner})}),
                1),
        make.row_bias("mlp.proj.bias", hf + "mlp.fc_out.bias")})
    layer.params.push_back(param);
  layer.ignored_tensors = {hf + "attn.bias", hf + "attn.masked_bias", hf + "attn.embed_positions"};
  layer.build = [c, split, i, table](const LayerBuild& build) {
    return std::make_unique<GptjBlock>(c, split, i, table, build);
  };
  return layer;
}

}  // namespace

HeadClasses gptj_heads() {
  return {{HeadChoice::Kind::causal_lm, "GPTJForCausalLM"},
          {HeadChoice::Kind::sequence_classification, "GPTJForSequenceClassification"},
          {HeadChoice::Kind::question_answering, "GPTJForQuestionAnswering"}};
}

GptjConfig gptj_config(HfConfigReader& read) {
  GptjConfig c;
  read_transformer_config(read, c);
  read_causal_heads(read, c);
  read.size("rotary_dim", nullptr, c.rotary_dim, /*null=*/c.head_dim());
  if (c.rotary_dim % 2 != 0 || c.rotary_dim > c.head_dim())
    read.complain(
        {"rotary_dim", "n_embd", "n_head"},
        cat("rotary_dim (", c.rotary_dim, ") must be even, because features are rotated in pairs, and at most the ",
            c.head_dim(), " features of a head (n_embd / n_head)"));
  read.accept_only("n_ctx", {c.n_positions}, "set n_positions; n_ctx is its old name");
  // Found in older files; transformers ignores them.
  read.accept_only("rotary", {true}, "leave it out: GPT-J has rotary positions");
  read.accept_only("scale_attn_weights", {true}, "leave it out: GPT-J scales attention scores");
  return c;
}

ModelSpec gptj_spec(const GptjConfig& config, const HeadChoice& head, bool sequence_parallel,
                    const SplitChoices& choices) {
  const SpecMaker make{config.n_embd, config.initializer_range, sequence_parallel, choices};
  const auto table = std::make_shared<const RotaryTable>(config.rotary_dim, config.n_positions);
  return causal_spec("gptj", config, head, make, [&](int64_t i) { return gptj_block(config, make, i, table); });
}

}  // namespace shardline
