#include "models/families/encoder.h"

#include <cmath>
#include <memory>
#include <utility>

#include "core/comm/communicator.h"
#include "core/error.h"
#include "models/families/transformer_block.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/embedding.h"
#include "tensor_parallel/ops/linear.h"
#include "tensor_parallel/ops/picked_rows.h"

namespace shardline {
namespace {

// The result of a norm has its weight's type; borders, and the input of norms, may be wider (fp32_residual_addition).
struct BorderType {
  std::optional<at::ScalarType> wide;
  at::Tensor border(const at::Tensor& x) const { return wide ? x.to(*wide) : x; }
  static at::Tensor layer(const at::Tensor& x, const Parameter& like) { return x.to(like.value.scalar_type()); }
};

// dropout(norm(words[ids] + positions[first + positions] + types[types]))
class EncoderEmbedding : public Layer {
 public:
  enum { kWords, kNorm, kNormBias, kPositions, kTypes };

  EncoderEmbedding(const EncoderConfig& config, const LayerBuild& build)
      : config_(config),
        tp_{build.tp, build.sequence_parallel},
        index_(build.index),
        words_(*build.params[kWords]),
        norm_(*build.params[kNorm]),
        norm_bias_(*build.params[kNormBias]),
        first_word_(build.spec->params[kWords].split(build.tp->rank(), build.tp->size()).begin),
        added_{{build.params[kPositions], AddedTable::By::position, config.first_position}},
        type_{build.half.border} {
    if (config.type_vocab_size > 0) added_.push_back({build.params[kTypes], AddedTable::By::type});
  }

  Border forward(const Border&, MicrobatchContext& context) override {
    const int64_t tokens = context.batch->tokens();
    const auto sum = embedding(tp_, *context.batch, words_, first_word_, added_, type_.wide);
    add_embedding_noise(tp_, context, index_, sum);
    const auto normed = layer_norm(tp_, sum, tokens, norm_, norm_bias_, config_.layer_norm_epsilon);
    const auto rows = dropout_rows(tp_, context, index_, 0, config_.embd_pdrop);
    return {type_.border(rows.probability == 0 ? normed : bias_dropout_add(tp_, normed, tokens, nullptr, {}, rows))};
  }

 private:
  EncoderConfig config_;
  TensorParallel tp_;
  int64_t index_;
  Parameter &words_, &norm_, &norm_bias_;
  int64_t first_word_;
  std::vector<AddedTable> added_;
  BorderType type_;
};

// y = norm(x + attention(x)), then norm(y + mlp(y))
class EncoderBlock : public TransformerBlock {
 public:
  enum { kQkv, kQkvBias, kOut, kOutBias, kNorm1, kNorm1Bias, kFc, kFcBias, kProj, kProjBias, kNorm2, kNorm2Bias };

  EncoderBlock(const EncoderConfig& config, BlockSplit split, int64_t block, const LayerBuild& build)
      : TransformerBlock(config, split, kQkv, block, 1 / std::sqrt(config.head_dim()), build),
        type_{build.half.border} {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto& x = input[0];  // [rows, hidden]
    const auto attended =
        attention(BorderType::layer(x, param(kQkv)), context, param(kQkv), &param(kQkvBias), param(kOut));
    const auto sum = added(attended, &param(kOutBias), x, context, 1);
    const auto middle = normed(sum, context, param(kNorm1), param(kNorm1Bias));
    const auto from_mlp = mlp(middle, context, param(kFc), param(kFcBias), param(kProj));
    const auto whole = added(from_mlp, &param(kProjBias), type_.border(middle), context, 2);
    return {type_.border(normed(whole, context, param(kNorm2), param(kNorm2Bias)))};
  }

 private:
  BorderType type_;
};

// norm(activation(dense(rows))), the logits over the vocabulary, and the loss. Masked words have labels in few rows,
// next words in all of them.
class WordHead : public Layer {
 public:
  enum { kDense, kDenseBias, kNorm, kNormBias, kWords, kWordsBias };

  WordHead(const EncoderConfig& config, HeadChoice choice, const LayerBuild& build)
      : config_(config),
        choice_(std::move(choice)),
        tp_{build.tp, build.sequence_parallel},
        params_(build.params),
        first_word_(build.spec->params[kWords].split(build.tp->rank(), build.tp->size()).begin) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const bool is_masked = choice_.kind == HeadChoice::Kind::masked_lm;
    SL_ASSERT(context.mode != Mode::generate || !is_masked, "a head for masked words generates nothing");
    const Microbatch& batch = *context.batch;
    const auto rows = is_masked ? masked_rows(batch, context.is_memory_bound) : at::Tensor();
    const auto x = BorderType::layer(picked_rows(tp_, input[0], batch.tokens(), rows), *params_[kDense]);
    const auto dense = column_linear({}, x, x.size(0), *params_[kDense], nullptr, context.weight_grads);
    const auto active = bias_activation(dense, *params_[kDenseBias], config_.head_activation);
    const auto normed = layer_norm(tp_, active, count_of_rows(batch, rows), *params_[kNorm], *params_[kNormBias],
                                   config_.layer_norm_epsilon);
    if (context.mode == Mode::generate)
      return {head_last_logits(tp_, normed, *params_[kWords], params_[kWordsBias], batch)};
    const auto loss =
        head_cross_entropy(tp_, normed, *params_[kWords], params_[kWordsBias], first_word_, context, rows);
    if (context.mode == Mode::train) return {loss};
    if (!context.predicts) return {};
    return {head_best_words(tp_, normed, *params_[kWords], params_[kWordsBias], first_word_, count_of_rows(batch, rows),
                            word_search(batch, rows))};
  }

 private:
  at::Tensor masked_rows(const Microbatch& batch, bool is_memory_bound) const {
    return labelled_rows(batch, is_memory_bound ? most_labelled_share(choice_, batch.tokens(), batch.segments())
                                                : choice_.labelled_share);
  }

  EncoderConfig config_;
  HeadChoice choice_;
  TensorParallel tp_;
  std::vector<Parameter*> params_;
  int64_t first_word_;
};

// Concatenates the weights [n, heads, head_dim, hidden] or biases [n, heads, head_dim] of several modules.
std::vector<ParamSource> stacked(const std::vector<std::string>& modules, const char* tensor,
                                 const std::vector<int64_t>& whole) {
  std::vector<int64_t> view = whole, shape = {whole[1] * whole[2]};
  view[0] = 1;
  shape.insert(shape.end(), whole.begin() + 3, whole.end());
  std::vector<ParamSource> sources;
  for (const auto& module : modules) {
    std::vector<int64_t> offset(whole.size());
    offset[0] = std::ssize(sources);
    sources.push_back({.tensor = module + tensor, .view = view, .offset = offset, .shape = shape});
  }
  return sources;
}

}  // namespace

LayerSpec encoder_embedding(const EncoderConfig& c, const EncoderNames& names, const SpecMaker& make) {
  LayerSpec layer{.name = "embedding", .output = {{"hidden", {BorderTensor::kRows, c.n_embd}}}};
  make.add_unit(layer, "words", kVocabularyWords, c.vocab_size);
  const auto table = [&](const std::string& name, int64_t entries, const std::string& hf) {
    return make.table(name, {entries, c.n_embd}, names.base + hf + ".weight");
  };
  layer.params = {make.of(layer.units[0], table("words.weight", c.vocab_size, names.words), 0)};
  for (const auto& param : make.norm("norm", names.base + names.norm)) layer.params.push_back(param);
  layer.params.push_back(table("positions.weight", c.first_position + c.n_positions, names.positions));
  if (c.type_vocab_size > 0) layer.params.push_back(table("types.weight", c.type_vocab_size, names.types));
  for (size_t i = EncoderEmbedding::kPositions; i < layer.params.size(); ++i)
    layer.params[i].partial_over_t = make.sequence_parallel;
  layer.ignored_tensors = {names.base + "embeddings.position_ids"};
  layer.build = [c](const LayerBuild& build) { return std::make_unique<EncoderEmbedding>(c, build); };
  return layer;
}

LayerSpec encoder_block(const EncoderConfig& c, const EncoderNames& names, const SpecMaker& make, int64_t i) {
  const std::string hf = cat(names.base, names.block, i, ".");
  const int64_t h = c.n_embd, n = c.n_head, d = c.head_dim(), inner = c.inner();
  LayerSpec layer{.name = cat("h.", i)};
  const BlockSplit split = describe_block(layer, c, make);
  const SplitUnit attn = layer.units[0], mlp = layer.units[1];
  const auto linear = [&](const SplitUnit& unit, const std::string& name, std::vector<int64_t> shape,
                          std::vector<ParamSource> sources, int split_dim) {
    return make.of(unit, make.linear(name, std::move(shape), c.initializer_range, std::move(sources)), split_dim);
  };
  const std::vector<std::string> qkv = {hf + names.query, hf + names.key, hf + names.value};
  ParamSpec qkv_bias = make.of(attn, make.column_bias("attn.qkv.bias", {3, n, d}, ""), 1);
  qkv_bias.sources = stacked(qkv, ".bias", {3, n, d});
  qkv_bias.deferred = true;  // its gradient is computed together with the weight's
  const auto norm1 = make.norm("norm1", hf + names.norm1), norm2 = make.norm("norm2", hf + names.norm2);
  layer.params = {
      linear(attn, "attn.qkv.weight", {3, n, d, h}, stacked(qkv, ".weight", {3, n, d, h}), 1),
      qkv_bias,
      linear(attn, "attn.out.weight", {h, n, d}, {torch_linear(hf + names.out + ".weight", {h, h})}, 1),
      make.row_bias("attn.out.bias", hf + names.out + ".bias"),
      norm1[0],
      norm1[1],
      linear(mlp, "mlp.fc.weight", {inner, h}, {torch_linear(hf + names.fc + ".weight", {inner, h})}, 0),
      make.of(mlp, make.column_bias("mlp.fc.bias", {inner}, hf + names.fc + ".bias"), 0),
      linear(mlp, "mlp.proj.weight", {h, inner}, {torch_linear(hf + names.proj + ".weight", {h, inner})}, 1),
      make.row_bias("mlp.proj.bias", hf + names.proj + ".bias"),
      norm2[0],
      norm2[1]};
  layer.build = [c, split, i](const LayerBuild& build) { return std::make_unique<EncoderBlock>(c, split, i, build); };
  return layer;
}

LayerSpec word_head(const EncoderConfig& c, const EncoderNames& names, const SpecMaker& make,
                    const HeadChoice& choice) {
  LayerSpec layer{.name = "head", .output = {}};
  make.add_unit(layer, "decoder", kVocabularyWords, c.vocab_size);
  const SplitUnit words = layer.units[0];
  ParamSpec dense = make.linear("dense.weight", {c.n_embd, c.n_embd}, c.initializer_range,
                                {{.tensor = names.word_dense + ".weight"}});
  dense.partial_over_t = make.sequence_parallel;
  const auto norm = make.norm("norm", names.word_norm);
  const bool tied = c.tie_word_embeddings;
  layer.params = {
      dense,
      make.row_bias("dense.bias", names.word_dense + ".bias"),
      norm[0],
      norm[1],
      make.of(words, make.table("decoder.weight", {c.vocab_size, c.n_embd}, names.decoder + ".weight"), 0),
      make.of(words,
              make.column_bias("decoder.bias", {c.vocab_size}, tied ? names.decoder_bias : names.decoder + ".bias"),
              0)};
  for (ParamSpec& param : layer.params) param.may_be_missing = true;
  if (tied)
    layer.params[WordHead::kWords].tied_to = "embedding.words.weight";
  else  // transformers 4 shares the bias, whether the decoder is tied or not, and writes one of its names
    layer.params[WordHead::kWordsBias].sources[0].stand_in = names.decoder_bias;
  layer.code = cat(task_name(choice.kind), " ", choice.labelled_share, " ", choice.labelled_together);
  layer.build = [c, choice](const LayerBuild& build) { return std::make_unique<WordHead>(c, choice, build); };
  return layer;
}

ModelSpec encoder_spec(const std::string& family, const EncoderConfig& c, const EncoderNames& names,
                       const SpecMaker& make, const HeadChoice& choice, const LabelHead& label) {
  ModelSpec spec{.family = family,
                 .variant = cat(variant_of(c), ", ", task_name(choice.kind)),
                 .layers = {encoder_embedding(c, names, make)},
                 .vocab_size = c.vocab_size,
                 .type_count = c.type_vocab_size,
                 .max_positions = c.n_positions};
  for (int64_t i = 0; i < c.n_layer; ++i) spec.layers.push_back(encoder_block(c, names, make, i));
  const bool has_words = choice.kind == HeadChoice::Kind::masked_lm || choice.kind == HeadChoice::Kind::causal_lm;
  spec.layers.push_back(has_words ? word_head(c, names, make, choice) : label_head(c, make, choice, label));
  add_aliases(spec, names.base);
  return spec;
}

}  // namespace shardline
