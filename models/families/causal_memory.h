// What the decoder families' layers keep of a microbatch, and what passes through them have in use: told from what the
// ops of tensor_parallel allocate, in their order. split: which units are; the others are whole on every T rank.
#pragma once
#include "core/model/model_spec.h"
#include "models/families/causal_config.h"

namespace shardline {

KeptBytes causal_block_kept(const CausalConfig& config, BlockSplit split, const KeptCase& at);
KeptBytes causal_head_kept(const CausalConfig& config, const KeptCase& at);

PassBytes causal_embedding_passes(const CausalConfig& config, bool split, const KeptCase& at);
PassBytes causal_block_passes(const CausalConfig& config, BlockSplit split, const KeptCase& at);
PassBytes causal_head_passes(const CausalConfig& config, bool split, const KeptCase& at);

}  // namespace shardline
