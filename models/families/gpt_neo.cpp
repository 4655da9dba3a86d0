#include "models/families/gpt_neo.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/families/causal_ends.h"
#include "models/families/transformer_block.h"
#include "models/files/hf_config_reader.h"

namespace shardline {
namespace {

using nlohmann::json;

// x + attention(norm(x)), then + mlp(norm(.))
class GptNeoBlock : public TransformerBlock {
 public:
  enum { kNorm1, kNorm1Bias, kQkv, kOut, kOutBias, kNorm2, kNorm2Bias, kFc, kFcBias, kProj, kProjBias };

  GptNeoBlock(const GptNeoConfig& config, BlockSplit split, int64_t block, const LayerBuild& build)
      : TransformerBlock(config, split, kQkv, block, /*scale=*/1, build,
                         config.local_blocks.contains(block) ? config.window_size : 0) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto& x = input[0];  // [rows, hidden]
    const auto attended =
        attention(normed(x, context, param(kNorm1), param(kNorm1Bias)), context, param(kQkv), nullptr, param(kOut));
    const auto middle = added(attended, &param(kOutBias), x, context, 1);
    const auto from_mlp = mlp(normed(middle, context, param(kNorm2), param(kNorm2Bias)), context, param(kFc),
                              param(kFcBias), param(kProj));
    return {added(from_mlp, &param(kProjBias), middle, context, 2)};
  }
};

LayerSpec gpt_neo_block(const GptNeoConfig& c, const SpecMaker& make, int64_t i) {
  const std::string hf = cat("transformer.h.", i, "."), attention = hf + "attn.attention.";
  const int64_t h = c.n_embd, n = c.n_head, d = c.head_dim(), inner = c.inner();
  const double std = c.initializer_range;
  LayerSpec layer{.name = cat("h.", i)};
  const BlockSplit split = describe_block(layer, c, make);
  const SplitUnit attn = layer.units[0], mlp = layer.units[1];
  const auto add = [&](std::vector<ParamSpec> params) {
    layer.params.insert(layer.params.end(), params.begin(), params.end());
  };
  add(make.norm("ln_1", hf + "ln_1"));
  add({make.of(attn, make.linear("attn.qkv.weight", {3, n, d, h}, std, qkv_sources(attention, n, d)), 1),
       make.of(attn,
               make.linear("attn.out.weight", {h, n, d}, std, {torch_linear(attention + "out_proj.weight", {h, h})}),
               1),
       make.row_bias("attn.out.bias", attention + "out_proj.bias")});
  add(make.norm("ln_2", hf + "ln_2"));
  add({make.of(mlp, make.linear("mlp.fc.weight", {inner, h}, std, {torch_linear(hf + "mlp.c_fc.weight", {inner, h})}),
               0),
       make.of(mlp, make.column_bias("mlp.fc.bias", {inner}, hf + "mlp.c_fc.bias"), 0),
       make.of(mlp,
               make.linear("mlp.proj.weight", {h, inner}, std, {torch_linear(hf + "mlp.c_proj.weight", {h, inner})}),
               1),
       make.row_bias("mlp.proj.bias", hf + "mlp.c_proj.bias")});
  layer.ignored_tensors = {attention + "bias", attention + "masked_bias"};
  if (c.local_blocks.contains(i)) layer.code = cat("window ", c.window_size);
  layer.build = [c, split, i](const LayerBuild& build) { return std::make_unique<GptNeoBlock>(c, split, i, build); };
  return layer;
}

// Returns "global" or "local" for each block, from a list of [kinds, number of repetitions]. Unset if `types` is not
// such a list.
std::optional<std::vector<std::string>> kinds_of_blocks(const json& types, int64_t blocks) {
  std::vector<std::string> kinds;
  for (const json& type : types) {
    if (!type.is_array() || type.size() != 2 || !type[0].is_array() || type[0].empty() || !type[1].is_number_unsigned())
      return {};
    for (const json& kind : type[0])
      if (kind != "global" && kind != "local") return {};
    for (uint64_t i = 0; i < type[1].get<uint64_t>(); ++i)
      for (const json& kind : type[0]) {
        if (std::cmp_greater_equal(kinds.size(), blocks)) return {};
        kinds.push_back(kind.get<std::string>());
      }
  }
  if (std::ssize(kinds) != blocks) return {};
  return kinds;
}

void read_attention_types(HfConfigReader& read, GptNeoConfig& c) {
  json types = json::parse(R"([[["global", "local"], 12]])");  // as in transformers, regardless of num_layers
  read.any("attention_types", json_array(), types);
  const auto kinds = kinds_of_blocks(types, c.n_layer);
  if (!kinds) {
    read.complain(
        {"attention_types", "num_layers"},
        cat("attention_types must be a list of [list of \"global\" and \"local\", number of repetitions] that "
            "describes each of the ",
            c.n_layer, " blocks (num_layers)"),
        R"(for example [[["global", "local"], 12]] for 24 blocks)");
    return;
  }
  for (int64_t i = 0; i < c.n_layer; ++i)
    if ((*kinds)[i] == "local") c.local_blocks.insert(i);
  // If a file has both, transformers uses the list of blocks.
  json layers = *kinds;
  read.any("attention_layers", json_array(), layers);
  if (layers != json(*kinds))
    read.complain({"attention_layers", "attention_types"},
                  cat("attention_layers is ", layers.dump(), ", but attention_types implies ", json(*kinds).dump()),
                  "make them agree, or leave attention_layers out");
}

}  // namespace

HeadClasses gpt_neo_heads() {
  return {{HeadChoice::Kind::causal_lm, "GPTNeoForCausalLM"},
          {HeadChoice::Kind::sequence_classification, "GPTNeoForSequenceClassification"},
          {HeadChoice::Kind::token_classification, "GPTNeoForTokenClassification"},
          {HeadChoice::Kind::question_answering, "GPTNeoForQuestionAnswering"}};
}

GptNeoConfig gpt_neo_config(HfConfigReader& read) {
  GptNeoConfig c;
  read_transformer_config(read, c,
                          {.positions = {"max_position_embeddings", nullptr},
                           .hidden = {"hidden_size", nullptr},
                           .layers = {"num_layers", "num_hidden_layers"},
                           .heads = {"num_heads", "num_attention_heads"},
                           .inner = "intermediate_size",
                           .residual_dropout = "resid_dropout",
                           .attention_dropout = "attention_dropout",
                           .embedding_dropout = "embed_dropout"});
  read_causal_heads(read, c);
  read.size("window_size", nullptr, c.window_size);
  read_attention_types(read, c);
  return c;
}

ModelSpec gpt_neo_spec(const GptNeoConfig& config, const HeadChoice& head, bool sequence_parallel,
                       const SplitChoices& choices) {
  const SpecMaker make{config.n_embd, config.initializer_range, sequence_parallel, choices};
  return causal_spec("gpt_neo", config, head, make, [&](int64_t i) { return gpt_neo_block(config, make, i); });
}

}  // namespace shardline
