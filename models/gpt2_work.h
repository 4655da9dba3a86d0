// What GPT-2's layers do with a microbatch (core/layer_work.h).
#pragma once
#include "models/gpt2.h"

namespace shardline {

LayerWork gpt2_embedding_work(const Gpt2Config& config, bool split, const WorkShape& shape);
LayerWork gpt2_block_work(const Gpt2Config& config, Gpt2BlockSplit split, const WorkShape& shape);
// The products of the head's backward run with the forward, as the op does it (head_cross_entropy).
LayerWork gpt2_head_work(const Gpt2Config& config, bool split, const WorkShape& shape);

}  // namespace shardline
