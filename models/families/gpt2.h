// GPT-2 (Radford et al. 2019) as a list of layers, with the names of Hugging Face's GPT2LMHeadModel.
#pragma once
#include "core/model/model_spec.h"
#include "models/families/causal_ends.h"

namespace shardline {

// The defaults are HF's.
struct Gpt2Config : CausalConfig {
  Gpt2Config()
      : CausalConfig{{.vocab_size = 50257,
                      .n_positions = 1024,
                      .n_embd = 768,
                      .n_layer = 12,
                      .n_head = 12,
                      .resid_pdrop = 0.1,
                      .embd_pdrop = 0.1,
                      .attn_pdrop = 0.1,
                      .tie_word_embeddings = true,
                      .position_table = true}} {}

  bool scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false;
};

// `read` records unsupported features (cross attention) and contradictions as mistakes.
Gpt2Config gpt2_config(HfConfigReader& read);

HeadClasses gpt2_heads();
// sequence_parallel: each rank of a tensor-parallel group has a part of the rows at borders (optimize: memory). Units:
// "embedding.wte", "h.N.attn", "h.N.mlp", "head.lm_head"; tied ones must have equal choices. A unit that is whole
// computes complete gradients or, with sequence_parallel, those of the rank's own rows.
ModelSpec gpt2_spec(const Gpt2Config& config, const HeadChoice& head, bool sequence_parallel,
                    const SplitChoices& choices = {});

}  // namespace shardline
