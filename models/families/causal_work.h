// What the decoder families' layers do with a microbatch (core/model/layer_work.h).
#pragma once
#include "core/model/layer_work.h"
#include "models/families/causal_config.h"

namespace shardline {

LayerWork causal_embedding_work(const CausalConfig& config, bool split, const WorkShape& shape);
LayerWork causal_block_work(const CausalConfig& config, BlockSplit split, const WorkShape& shape);
// The products of the head's backward run with the forward, as the op does it (head_cross_entropy).
LayerWork causal_head_work(const CausalConfig& config, bool split, const WorkShape& shape);

}  // namespace shardline
