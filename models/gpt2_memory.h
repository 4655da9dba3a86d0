// What GPT-2's layers keep of a microbatch, and what passes through them have in use: told from what the ops of
// tensor_parallel allocate, in their order. split: which units are; the others are whole on every T rank.
#pragma once
#include "core/model_spec.h"
#include "models/gpt2.h"

namespace shardline {

KeptBytes gpt2_block_kept(const Gpt2Config& config, Gpt2BlockSplit split, const KeptCase& at);
KeptBytes gpt2_head_kept(const Gpt2Config& config, const KeptCase& at);

PassBytes gpt2_embedding_passes(const Gpt2Config& config, bool split, const KeptCase& at);
PassBytes gpt2_block_passes(const Gpt2Config& config, Gpt2BlockSplit split, const KeptCase& at);
PassBytes gpt2_head_passes(const Gpt2Config& config, bool split, const KeptCase& at);

}  // namespace shardline
