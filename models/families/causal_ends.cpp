#include "models/families/causal_ends.h"

#include <nlohmann/json.hpp>

#include "core/comm/communicator.h"
#include "core/error.h"
#include "core/model/layer.h"
#include "models/families/label_head.h"
#include "models/files/hf_config_reader.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/embedding.h"

namespace shardline {
namespace {

using nlohmann::json;

int64_t first_unit(const LayerBuild& build, size_t param) {
  return build.spec->params[param].split(build.tp->rank(), build.tp->size()).begin;
}

// Null if the family does not have it.
Parameter* optional_parameter(const LayerBuild& build, size_t param) {
  return param < build.params.size() ? build.params[param] : nullptr;
}

// dropout(wte[ids] + wpe[positions])
class CausalEmbedding : public Layer {
 public:
  enum { kWte, kWpe };

  CausalEmbedding(const TransformerConfig& config, const LayerBuild& build)
      : config_(config),
        tp_{build.tp, build.sequence_parallel},
        index_(build.index),
        words_(*build.params[kWte]),
        first_word_(first_unit(build, kWte)),
        border_(build.half.border) {
    if (config.position_table) added_ = {{.table = build.params[kWpe]}};
  }

  Border forward(const Border&, MicrobatchContext& context) override {
    const auto sum = embedding(tp_, *context.batch, words_, first_word_, added_, border_);
    add_embedding_noise(tp_, context, index_, sum);
    const auto rows = dropout_rows(tp_, context, index_, 0, config_.embd_pdrop);
    if (rows.probability == 0) return {sum};
    return {bias_dropout_add(tp_, sum, context.batch->tokens(), nullptr, {}, rows)};
  }

 private:
  TransformerConfig config_;
  TensorParallel tp_;
  int64_t index_;
  Parameter& words_;
  int64_t first_word_;
  std::vector<AddedTable> added_;
  std::optional<at::ScalarType> border_;
};

// The final norm, the logits over the vocabulary, and the loss.
class CausalHead : public Layer {
 public:
  enum { kNorm, kNormBias, kWords, kWordsBias };

  CausalHead(const TransformerConfig& config, const LayerBuild& build)
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
  TransformerConfig config_;
  TensorParallel tp_;
  Parameter &norm_, &norm_bias_, &words_, *words_bias_;
  int64_t first_word_;
};

LabelHead causal_label_head(const CausalConfig& c, HeadChoice::Kind kind) {
  LabelHead head{.rows = rows_of_head(kind, LabelHead::Rows::last), .norm = "transformer.ln_f"};
  if (kind == HeadChoice::Kind::sequence_classification) {
    head.classifier = "score";
    head.classifier_bias = false;
  } else if (kind == HeadChoice::Kind::question_answering) {
    head.classifier = "qa_outputs";
  } else {
    head.dropout = c.classifier_dropout;
  }
  return head;
}

}  // namespace

LayerSpec causal_embedding(const TransformerConfig& c, const SpecMaker& make) {
  LayerSpec layer{.name = "embedding", .output = {{"hidden", {BorderTensor::kRows, c.n_embd}}}};
  make.add_unit(layer, "wte", kVocabularyWords, c.vocab_size);
  layer.params = {
      make.of(layer.units[0], make.table("wte.weight", {c.vocab_size, c.n_embd}, "transformer.wte.weight"), 0)};
  if (c.position_table) {
    layer.params.push_back(make.table("wpe.weight", {c.n_positions, c.n_embd}, "transformer.wpe.weight"));
    layer.params[CausalEmbedding::kWpe].partial_over_t = make.sequence_parallel;
  }
  layer.build = [c](const LayerBuild& build) { return std::make_unique<CausalEmbedding>(c, build); };
  return layer;
}

LayerSpec causal_head(const TransformerConfig& c, const SpecMaker& make) {
  LayerSpec layer{.name = "head", .output = {}};
  make.add_unit(layer, "lm_head", kVocabularyWords, c.vocab_size);
  const SplitUnit words = layer.units[0];
  layer.params = make.norm("ln_f", "transformer.ln_f");
  layer.params.push_back(make.of(words, make.table("lm_head.weight", {c.vocab_size, c.n_embd}, "lm_head.weight"), 0));
  if (c.tie_word_embeddings) layer.params[CausalHead::kWords].tied_to = "embedding.wte.weight";
  if (c.head_bias)
    layer.params.push_back(make.of(words, make.column_bias("lm_head.bias", {c.vocab_size}, "lm_head.bias"), 0));
  layer.build = [c](const LayerBuild& build) { return std::make_unique<CausalHead>(c, build); };
  return layer;
}

void read_causal_heads(HfConfigReader& read, CausalConfig& c) {
  json dropout = nullptr;
  for (const char* key : {"hidden_dropout", "classifier_dropout"}) {  // if both are set, transformers uses the second
    read.any(key, or_null(json_number(0, 0.999)), dropout);
    if (!dropout.is_null()) c.classifier_dropout = dropout.get<double>();
  }
  // These keys belong to heads for multiple choice.
  read.accept(
      {"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"});
}

ModelSpec causal_spec(const std::string& family, const CausalConfig& c, const HeadChoice& head, const SpecMaker& make,
                      const std::function<LayerSpec(int64_t)>& block) {
  const bool has_words = head.kind == HeadChoice::Kind::causal_lm;
  ModelSpec spec{.family = family,
                 .variant = variant_of(c) + (has_words ? "" : cat(", ", task_name(head.kind))),
                 .layers = {causal_embedding(c, make)},
                 .vocab_size = c.vocab_size,
                 .max_positions = c.n_positions,
                 .surplus = {"score.", "classifier.", "qa_outputs."}};
  for (int64_t i = 0; i < c.n_layer; ++i) spec.layers.push_back(block(i));
  spec.layers.push_back(has_words ? causal_head(c, make) : label_head(c, make, head, causal_label_head(c, head.kind)));
  if (!has_words) spec.surplus.push_back("lm_head.");
  add_aliases(spec, "transformer.");
  return spec;
}

}  // namespace shardline
