#include "models/gpt2.h"

#include <cmath>
#include <numeric>

#include "core/communicator.h"
#include "core/error.h"
#include "core/layer.h"
#include "models/gpt2_memory.h"
#include "models/gpt2_work.h"
#include "tensor_parallel/attention.h"
#include "tensor_parallel/cross_entropy.h"
#include "tensor_parallel/elementwise.h"
#include "tensor_parallel/embedding.h"
#include "tensor_parallel/linear.h"

namespace shardline {
namespace {

TensorParallel tensor_parallel(const LayerBuild& build) {
  return {build.tp, build.sequence_parallel};
}
int64_t first_unit(const LayerBuild& build, size_t param) {
  return build.spec->params[param].split(build.tp->rank(), build.tp->size()).begin;
}

// dropout(wte[ids] + wpe[positions])
class Embedding : public Layer {
 public:
  enum { kWte, kWpe, kParams };

  Embedding(const Gpt2Config& config, const LayerBuild& build)
      : config_(config),
        tp_(tensor_parallel(build)),
        index_(build.index),
        params_(build.params),
        first_word_(first_unit(build, kWte)),
        border_(build.half.border) {}

  Border forward(const Border&, MicrobatchContext& context) override {
    const auto sum = embedding(tp_, *context.batch, *params_[kWte], first_word_, *params_[kWpe], border_);
    const auto rows = dropout_rows(tp_, context, index_, 0, config_.embd_pdrop);
    if (rows.probability == 0) return {sum};
    return {bias_dropout_add(tp_, sum, context.batch->tokens(), nullptr, {}, rows)};
  }

 private:
  Gpt2Config config_;
  TensorParallel tp_;
  int64_t index_;
  std::vector<Parameter*> params_;
  int64_t first_word_;
  std::optional<at::ScalarType> border_;
};

// x + attention(norm(x)), then + mlp(norm(.))
class Block : public Layer {
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
    kParams
  };

  Block(const Gpt2Config& config, Gpt2BlockSplit split, int64_t block, const LayerBuild& build)
      : config_(config),
        tp_(tensor_parallel(build)),
        attention_tp_(split.attention ? tp_ : TensorParallel{}),
        mlp_tp_(split.mlp ? tp_ : TensorParallel{}),
        core_tp_(split.attention ? TensorParallel{} : tp_),
        index_(build.index),
        params_(build.params) {
    const Range heads =
        split.attention ? build.spec->params[kQkv].split(build.tp->rank(), build.tp->size()) : Range{0, config.n_head};
    attention_ = {.heads = heads.length,
                  .head_dim = config.head_dim(),
                  .scale = (config.scale_attn_weights ? 1 / std::sqrt(static_cast<double>(config.head_dim())) : 1.0) /
                           (config.scale_attn_by_inverse_layer_idx ? static_cast<double>(block + 1) : 1.0),
                  .dropout = config.attn_pdrop,
                  .first_head = heads.begin,
                  .max_positions = config.n_positions,
                  .dropout_op = dropout_op(index_, 0),
                  .in_fp32 = build.half.attention_in_fp32,
                  .score_divisor = build.half.query_key_layer_scaling ? static_cast<double>(block + 1) : 1.0};
  }

  Border forward(const Border& input, MicrobatchContext& context) override {
    const int64_t tokens = context.batch->tokens();
    const auto& x = input[0];  // [rows, hidden]
    const auto normed = layer_norm(tp_, x, tokens, *params_[kNorm1], *params_[kNorm1Bias], config_.layer_norm_epsilon);
    const auto qkv = gathered_for_all(
        core_tp_, column_linear(attention_tp_, normed, tokens, *params_[kQkv], params_[kQkvBias], context.weight_grads),
        tokens);
    const auto out = attend(qkv, context, attention_, [&](const at::Tensor& mixed) {
      return row_linear(attention_tp_, sliced_from_all(core_tp_, mixed), *params_[kOut], context.weight_grads);
    });
    const auto middle = bias_dropout_add(tp_, out, tokens, params_[kOutBias], x,
                                         dropout_rows(tp_, context, index_, 1, config_.resid_pdrop));
    return {middle_to_output(middle, context)};
  }

 private:
  at::Tensor middle_to_output(const at::Tensor& x, MicrobatchContext& context) {
    const int64_t tokens = context.batch->tokens();
    const auto normed = layer_norm(tp_, x, tokens, *params_[kNorm2], *params_[kNorm2Bias], config_.layer_norm_epsilon);
    const auto wide = column_linear(mlp_tp_, normed, tokens, *params_[kFc], nullptr, context.weight_grads);
    const auto active = bias_activation(wide, *params_[kFcBias], config_.activation_function);
    const auto narrow = row_linear(mlp_tp_, active, *params_[kProj], context.weight_grads);
    return bias_dropout_add(tp_, narrow, tokens, params_[kProjBias], x,
                            dropout_rows(tp_, context, index_, 2, config_.resid_pdrop));
  }

  Gpt2Config config_;
  TensorParallel tp_;
  // Among whom the linears are split: without others, they take the rows that this rank has. Whole attention then needs
  // q, k and v of all tokens, and its core has whom to get them from.
  TensorParallel attention_tp_, mlp_tp_, core_tp_;
  int64_t index_;
  std::vector<Parameter*> params_;
  AttentionOptions attention_;
};

// The last norm, the vocabulary's logits, and the loss.
class Head : public Layer {
 public:
  enum { kNorm, kNormBias, kWords, kParams };

  Head(const Gpt2Config& config, const LayerBuild& build)
      : config_(config), tp_(tensor_parallel(build)), params_(build.params), first_word_(first_unit(build, kWords)) {}

  Border forward(const Border& input, MicrobatchContext& context) override {
    const auto normed = layer_norm(tp_, input[0], context.batch->tokens(), *params_[kNorm], *params_[kNormBias],
                                   config_.layer_norm_epsilon);
    if (context.mode == Mode::generate) return {head_last_logits(tp_, normed, *params_[kWords], *context.batch)};
    const auto loss = head_cross_entropy(tp_, normed, *params_[kWords], first_word_, context);
    return loss.defined() ? Border{loss} : Border{};
  }

 private:
  Gpt2Config config_;
  TensorParallel tp_;
  std::vector<Parameter*> params_;
  int64_t first_word_;
};

// ---- the parameters: logical shapes, splits and HF names

struct SpecMaker {
  const Gpt2Config& c;
  bool sequence_parallel;
  const SplitChoices& choices;

  void add_unit(LayerSpec& layer, const std::string& name, const std::string& parts, int64_t count) const {
    layer.units.push_back({name, parts, count});
    SplitUnit& unit = layer.units.back();
    const auto found = choices.find(layer.full_name(unit));
    if (found == choices.end()) return;
    unit.split = found->second.split;
    unit.why = found->second.why;
  }

  // Of a unit: split at `split_dim`, or whole with the gradient of the rows that a rank has.
  ParamSpec of(const SplitUnit& unit, ParamSpec param, int split_dim) const {
    param.split_dim = unit.split ? split_dim : -1;
    param.partial_over_t = !unit.split && sequence_parallel;
    return param;
  }

  ParamSpec norm(const std::string& name, const std::string& hf, Init::Kind init) const {
    return {.name = name,
            .shape = {c.n_embd},
            .init = {init},
            .decays = false,
            .partial_over_t = sequence_parallel,
            .sources = {{.tensor = hf}}};
  }
  // A bias that is added after the sum over ranks: whole everywhere.
  ParamSpec row_bias(const std::string& name, const std::string& hf) const { return norm(name, hf, Init::Kind::zeros); }

  ParamSpec table(const std::string& name, std::vector<int64_t> shape, const std::string& hf) const {
    return {.name = name,
            .shape = std::move(shape),
            .init = {Init::Kind::normal, c.initializer_range},
            .sources = {{.tensor = hf}}};
  }
  // HF keeps a Conv1D weight inputs first, file_shape; view and permute make the logical one, outputs first, of it.
  ParamSpec conv1d(const std::string& name, std::vector<int64_t> shape, double std, const std::string& hf,
                   std::vector<int64_t> file_shape, std::vector<int64_t> view, std::vector<int64_t> permute) const {
    return {.name = name,
            .shape = std::move(shape),
            .init = {Init::Kind::normal, std},
            .deferred = true,
            .sources = {{hf, std::move(view), std::move(permute), {}, std::move(file_shape)}}};
  }
  ParamSpec column_bias(const std::string& name, const std::vector<int64_t>& shape, const std::string& hf) const {
    const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    return {.name = name, .shape = shape, .decays = false, .sources = {{.tensor = hf, .shape = {numel}}}};
  }
};

LayerSpec embedding_spec(const Gpt2Config& c, const SpecMaker& make) {
  LayerSpec layer{.name = "embedding", .output = {{"hidden", {BorderTensor::kRows, c.n_embd}}}};
  make.add_unit(layer, "wte", "words", c.vocab_size);
  const bool split = layer.units[0].split;
  layer.params = {
      make.of(layer.units[0], make.table("wte.weight", {c.vocab_size, c.n_embd}, "transformer.wte.weight"), 0),
      make.table("wpe.weight", {c.n_positions, c.n_embd}, "transformer.wpe.weight")};
  layer.params[Embedding::kWpe].partial_over_t = make.sequence_parallel;
  layer.work = [c, split](const WorkShape& shape) { return gpt2_embedding_work(c, split, shape); };
  layer.build = [c](const LayerBuild& build) { return std::make_unique<Embedding>(c, build); };
  layer.kept = [](const KeptCase&) { return KeptBytes{}; };  // all of it follows from the batch again
  layer.passes = [c, split](const KeptCase& at) { return gpt2_embedding_passes(c, split, at); };
  return layer;
}

LayerSpec block_spec(const Gpt2Config& c, const SpecMaker& make, int64_t i) {
  const std::string hf = cat("transformer.h.", i, ".");
  const int64_t h = c.n_embd, n = c.n_head, d = c.head_dim(), inner = c.inner();
  // The weights that add to the residual stream start smaller (GPT-2 paper, 2.3).
  const double std = c.initializer_range, residual_std = std / std::sqrt(2.0 * static_cast<double>(c.n_layer));
  LayerSpec layer{.name = cat("h.", i), .is_block = true, .output = {{"hidden", {BorderTensor::kRows, h}}}};
  make.add_unit(layer, "attn", "heads", n);
  make.add_unit(layer, "mlp", "inner features", inner);
  const SplitUnit &attn = layer.units[0], &mlp = layer.units[1];
  layer.params = {
      make.norm("ln_1.weight", hf + "ln_1.weight", Init::Kind::ones),
      make.norm("ln_1.bias", hf + "ln_1.bias", Init::Kind::zeros),
      make.of(attn,
              make.conv1d("attn.qkv.weight", {3, n, d, h}, std, hf + "attn.c_attn.weight", {h, 3 * h}, {h, 3, n, d},
                          {1, 2, 3, 0}),
              1),
      make.of(attn, make.column_bias("attn.qkv.bias", {3, n, d}, hf + "attn.c_attn.bias"), 1),
      make.of(attn,
              make.conv1d("attn.out.weight", {h, n, d}, residual_std, hf + "attn.c_proj.weight", {h, h}, {n, d, h},
                          {2, 0, 1}),
              1),
      make.row_bias("attn.out.bias", hf + "attn.c_proj.bias"),
      make.norm("ln_2.weight", hf + "ln_2.weight", Init::Kind::ones),
      make.norm("ln_2.bias", hf + "ln_2.bias", Init::Kind::zeros),
      make.of(mlp,
              make.conv1d("mlp.fc.weight", {inner, h}, std, hf + "mlp.c_fc.weight", {h, inner}, {h, inner}, {1, 0}), 0),
      make.of(mlp, make.column_bias("mlp.fc.bias", {inner}, hf + "mlp.c_fc.bias"), 0),
      make.of(mlp,
              make.conv1d("mlp.proj.weight", {h, inner}, residual_std, hf + "mlp.c_proj.weight", {inner, h}, {inner, h},
                          {1, 0}),
              1),
      make.row_bias("mlp.proj.bias", hf + "mlp.c_proj.bias"),
  };
  layer.params[Block::kQkvBias].deferred = true;  // added with its weight's; fc's is the activation's
  const Gpt2BlockSplit split{attn.split, mlp.split};
  layer.flops_per_token = static_cast<double>(2 * (4 * h * h + 2 * h * inner));
  layer.work = [c, split](const WorkShape& shape) { return gpt2_block_work(c, split, shape); };
  layer.build = [c, split, i](const LayerBuild& build) { return std::make_unique<Block>(c, split, i, build); };
  layer.kept = [c, split](const KeptCase& at) { return gpt2_block_kept(c, split, at); };
  layer.passes = [c, split](const KeptCase& at) { return gpt2_block_passes(c, split, at); };
  return layer;
}

LayerSpec head_spec(const Gpt2Config& c, const SpecMaker& make) {
  LayerSpec layer{.name = "head", .output = {}};
  make.add_unit(layer, "lm_head", "words", c.vocab_size);
  const bool split = layer.units[0].split;
  layer.params = {make.norm("ln_f.weight", "transformer.ln_f.weight", Init::Kind::ones),
                  make.norm("ln_f.bias", "transformer.ln_f.bias", Init::Kind::zeros),
                  make.of(layer.units[0], make.table("lm_head.weight", {c.vocab_size, c.n_embd}, "lm_head.weight"), 0)};
  if (c.tie_word_embeddings) layer.params[Head::kWords].tied_to = "embedding.wte.weight";
  layer.flops_per_token = static_cast<double>(2 * c.vocab_size * c.n_embd);
  layer.work = [c, split](const WorkShape& shape) { return gpt2_head_work(c, split, shape); };
  layer.build = [c](const LayerBuild& build) { return std::make_unique<Head>(c, build); };
  layer.kept = [c](const KeptCase& at) { return gpt2_head_kept(c, at); };
  layer.passes = [c, split](const KeptCase& at) { return gpt2_head_passes(c, split, at); };
  return layer;
}

}  // namespace

ModelSpec gpt2_spec(const Gpt2Config& config, bool sequence_parallel, const SplitChoices& choices) {
  const SpecMaker make{config, sequence_parallel, choices};
  ModelSpec spec{.family = "gpt2",
                 .layers = {embedding_spec(config, make)},
                 .vocab_size = config.vocab_size,
                 .max_positions = config.n_positions,
                 .ignored_tensors = {R"((transformer\.)?h\.\d+\.attn\.(bias|masked_bias))"}};
  for (int64_t i = 0; i < config.n_layer; ++i) spec.layers.push_back(block_spec(config, make, i));
  spec.layers.push_back(head_spec(config, make));
  return spec;
}

}  // namespace shardline
