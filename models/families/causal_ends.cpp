#include "models/families/causal_ends.h"

#include "core/comm/communicator.h"
#include "core/model/layer.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/embedding.h"

namespace shardline {
namespace {

int64_t first_unit(const LayerBuild& build, size_t param) {
  return build.spec->params[param].split(build.tp->rank(), build.tp->size()).begin;
}

// Null where the family has none.
Parameter* optional_parameter(const LayerBuild& build, size_t param) {
  return param < build.params.size() ? build.params[param] : nullptr;
}

// dropout(wte[ids] + wpe[positions])
class CausalEmbedding : public Layer {
 public:
  enum { kWte, kWpe };

  CausalEmbedding(const CausalConfig& config, const LayerBuild& build)
      : config_(config),
        tp_{build.tp, build.sequence_parallel},
        index_(build.index),
        words_(*build.params[kWte]),
        positions_(optional_parameter(build, kWpe)),
        first_word_(first_unit(build, kWte)),
        border_(build.half.border) {}

  Border forward(const Border&, MicrobatchContext& context) override {
    const auto sum = embedding(tp_, *context.batch, words_, first_word_, positions_, border_);
    const auto rows = dropout_rows(tp_, context, index_, 0, config_.embd_pdrop);
    if (rows.probability == 0) return {sum};
    return {bias_dropout_add(tp_, sum, context.batch->tokens(), nullptr, {}, rows)};
  }

 private:
  CausalConfig config_;
  TensorParallel tp_;
  int64_t index_;
  Parameter& words_;
  Parameter* positions_;
  int64_t first_word_;
  std::optional<at::ScalarType> border_;
};

// The last norm, the vocabulary's logits, and the loss.
class CausalHead : public Layer {
 public:
  enum { kNorm, kNormBias, kWords, kWordsBias };

  CausalHead(const CausalConfig& config, const LayerBuild& build)
      : config_(config),
        tp_{build.tp, build.sequence_parallel},
        norm_(*build.params[kNorm]),
        norm_bias_(*build.params[kNormBias]),
        words_(*build.params[kWords]),
        words_bias_(optional_parameter(build, kWordsBias)),
        first_word_(first_unit(build, kWords)) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto normed =
        layer_norm(tp_, input[0], context.batch->tokens(), norm_, norm_bias_, config_.layer_norm_epsilon);
    if (context.mode == Mode::generate) return {head_last_logits(tp_, normed, words_, words_bias_, *context.batch)};
    const auto loss = head_cross_entropy(tp_, normed, words_, words_bias_, first_word_, context);
    return loss.defined() ? Border{loss} : Border{};
  }

 private:
  CausalConfig config_;
  TensorParallel tp_;
  Parameter &norm_, &norm_bias_, &words_, *words_bias_;
  int64_t first_word_;
};

}  // namespace

LayerSpec causal_embedding(const CausalConfig& c, const SpecMaker& make) {
  LayerSpec layer{.name = "embedding", .output = {{"hidden", {BorderTensor::kRows, c.n_embd}}}};
  make.add_unit(layer, "wte", "words", c.vocab_size);
  layer.params = {
      make.of(layer.units[0], make.table("wte.weight", {c.vocab_size, c.n_embd}, "transformer.wte.weight"), 0)};
  if (c.position_table) {
    layer.params.push_back(make.table("wpe.weight", {c.n_positions, c.n_embd}, "transformer.wpe.weight"));
    layer.params[CausalEmbedding::kWpe].partial_over_t = make.sequence_parallel;
  }
  layer.build = [c](const LayerBuild& build) { return std::make_unique<CausalEmbedding>(c, build); };
  return layer;
}

LayerSpec causal_head(const CausalConfig& c, const SpecMaker& make) {
  LayerSpec layer{.name = "head", .output = {}};
  make.add_unit(layer, "lm_head", "words", c.vocab_size);
  const SplitUnit words = layer.units[0];
  layer.params = make.norm("ln_f", "transformer.ln_f");
  layer.params.push_back(make.of(words, make.table("lm_head.weight", {c.vocab_size, c.n_embd}, "lm_head.weight"), 0));
  if (c.tie_word_embeddings) layer.params[CausalHead::kWords].tied_to = "embedding.wte.weight";
  if (c.head_bias)
    layer.params.push_back(make.of(words, make.column_bias("lm_head.bias", {c.vocab_size}, "lm_head.bias"), 0));
  layer.build = [c](const LayerBuild& build) { return std::make_unique<CausalHead>(c, build); };
  return layer;
}

ModelSpec causal_spec(const std::string& family, const CausalConfig& config, const SpecMaker& make,
                      const std::function<LayerSpec(int64_t)>& block) {
  ModelSpec spec{.family = family,
                 .variant = variant_of(config),
                 .layers = {causal_embedding(config, make)},
                 .vocab_size = config.vocab_size,
                 .max_positions = config.n_positions};
  for (int64_t i = 0; i < config.n_layer; ++i) spec.layers.push_back(block(i));
  spec.layers.push_back(causal_head(config, make));
  return spec;
}

}  // namespace shardline
