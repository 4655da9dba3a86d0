#include "models/families/transformer_block.h"

#include "core/comm/communicator.h"
#include "models/families/spec_maker.h"
#include "tensor_parallel/ops/elementwise.h"
#include "tensor_parallel/ops/linear.h"

namespace shardline {

TransformerBlock::TransformerBlock(const TransformerConfig& config, BlockSplit split, size_t qkv, int64_t block,
                                   double scale, const LayerBuild& build, int64_t window)
    : config_(config),
      tp_{build.tp, build.sequence_parallel},
      attention_tp_(split.attention ? tp_ : TensorParallel{}),
      mlp_tp_(split.mlp ? tp_ : TensorParallel{}),
      core_tp_(split.attention ? TensorParallel{} : tp_),
      index_(build.index),
      params_(build.params) {
  const Range heads =
      split.attention ? build.spec->params[qkv].split(build.tp->rank(), build.tp->size()) : Range{0, config.n_head};
  attention_ = {.heads = heads.length,
                .head_dim = config.head_dim(),
                .scale = scale,
                .causal = config.causal,
                .window = window,
                .dropout = config.attn_pdrop,
                .first_head = heads.begin,
                .max_positions = config.n_positions,
                .dropout_op = dropout_op(index_, 0),
                .in_fp32 = build.half.attention_in_fp32,
                .score_divisor = build.half.query_key_layer_scaling ? block + 1.0 : 1.0};
}

at::Tensor TransformerBlock::normed(const at::Tensor& x, const MicrobatchContext& context, Parameter& weight,
                                    Parameter& bias) const {
  return layer_norm(tp_, x, context.batch->tokens(), weight, bias, config_.layer_norm_epsilon);
}

at::Tensor TransformerBlock::attention(const at::Tensor& x, MicrobatchContext& context, Parameter& qkv,
                                       Parameter* qkv_bias, Parameter& out) const {
  const int64_t tokens = context.batch->tokens();
  const auto of_all = gathered_for_all(
      core_tp_,
      with_rotary(core_tp_, column_linear(attention_tp_, x, tokens, qkv, qkv_bias, context.weight_grads),
                  *context.batch),
      tokens);
  return attend(of_all, context, attention_, [&](const at::Tensor& mixed) {
    return row_linear(attention_tp_, sliced_from_all(core_tp_, mixed), out, context.weight_grads);
  });
}

at::Tensor TransformerBlock::mlp(const at::Tensor& x, MicrobatchContext& context, Parameter& fc, Parameter& fc_bias,
                                 Parameter& proj) const {
  const auto wide = column_linear(mlp_tp_, x, context.batch->tokens(), fc, nullptr, context.weight_grads);
  const auto active = bias_activation(wide, fc_bias, config_.activation_function);
  return row_linear(mlp_tp_, active, proj, context.weight_grads);
}

at::Tensor TransformerBlock::added(const at::Tensor& branch, Parameter* bias, const at::Tensor& residual,
                                   const MicrobatchContext& context, int site) const {
  return bias_dropout_add(tp_, branch, context.batch->tokens(), bias, residual,
                          dropout_rows(tp_, context, index_, site, config_.resid_pdrop));
}

BlockSplit describe_block(LayerSpec& layer, const TransformerConfig& c, const SpecMaker& make) {
  layer.is_block = true;
  layer.output = {{"hidden", {BorderTensor::kRows, c.n_embd}}};
  make.add_unit(layer, "attn", kAttentionHeads, c.n_head);
  make.add_unit(layer, "mlp", "inner features", c.inner());
  return {layer.units[0].split, layer.units[1].split};
}

}  // namespace shardline
