// Building blocks of the families: attention, an MLP and norms. Attention and MLP are each split over the T ranks, or
// whole on each rank. A family's own layer combines them.
#pragma once
#include <vector>

#include "core/model/layer.h"
#include "models/families/transformer_config.h"
#include "tensor_parallel/ops/attention.h"
#include "tensor_parallel/ops/collectives.h"

namespace shardline {

struct SpecMaker;

class TransformerBlock : public Layer {
 protected:
  // qkv: index of this parameter in the layer's spec; its dimension 1 is the heads. block: counted from 0. scale:
  // multiplies the scores. window: see AttentionOptions.
  TransformerBlock(const TransformerConfig& config, BlockSplit split, size_t qkv, int64_t block, double scale,
                   const LayerBuild& build, int64_t window = 0);

  Parameter& param(size_t i) const { return *params_[i]; }

  at::Tensor normed(const at::Tensor& x, const MicrobatchContext& context, Parameter& weight, Parameter& bias) const;
  // Border rows [rows, hidden] -> border rows, before the bias of the projection.
  at::Tensor attention(const at::Tensor& x, MicrobatchContext& context, Parameter& qkv, Parameter* qkv_bias,
                       Parameter& out) const;
  at::Tensor mlp(const at::Tensor& x, MicrobatchContext& context, Parameter& fc, Parameter& fc_bias,
                 Parameter& proj) const;
  // residual + dropout(branch + bias); site: 1 for attention, 2 for the MLP.
  at::Tensor added(const at::Tensor& branch, Parameter* bias, const at::Tensor& residual,
                   const MicrobatchContext& context, int site) const;

  // Applies positions to queries and keys of qkv [rows of tp, 3 * heads * head_dim] in families with rotary embedding.
  virtual at::Tensor with_rotary(const TensorParallel& tp, const at::Tensor& qkv, const Microbatch& batch) const {
    return qkv;
  }

  TransformerConfig config_;

 private:
  TensorParallel tp_;
  // The ranks over which the linears are split; without other ranks, linears process the rows that this rank has. Whole
  // attention then needs q, k and v of all tokens, which its core gathers from the other ranks.
  TensorParallel attention_tp_, mlp_tp_, core_tp_;
  int64_t index_;
  std::vector<Parameter*> params_;
  AttentionOptions attention_;
};

// Fills in a block's spec except for its parameters: units "attn" and "mlp", and the border. Returns which of the units
// are split.
BlockSplit describe_block(LayerSpec& layer, const TransformerConfig& config, const SpecMaker& make);

}  // namespace shardline
