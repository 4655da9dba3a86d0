// GPT-Neo (Black et al. 2021) as a list of layers, with the names of Hugging Face's GPTNeoForCausalLM: GPT-2's order
// within blocks, unscaled scores, and some blocks whose queries see only the last `window_size` keys.
#pragma once
#include <set>

#include "core/model/model_spec.h"
#include "models/families/causal_ends.h"

namespace shardline {

// The defaults are HF's.
struct GptNeoConfig : CausalConfig {
  GptNeoConfig()
      : CausalConfig{{.vocab_size = 50257,
                      .n_positions = 2048,
                      .n_embd = 2048,
                      .n_layer = 24,
                      .n_head = 16,
                      .tie_word_embeddings = true,
                      .position_table = true}} {}

  int64_t window_size = 256;
  std::set<int64_t> local_blocks;  // the blocks with a window; counted from 0
};

// `read` records contradictions as mistakes.
GptNeoConfig gpt_neo_config(HfConfigReader& read);

HeadClasses gpt_neo_heads();
// See gpt2_spec.
ModelSpec gpt_neo_spec(const GptNeoConfig& config, const HeadChoice& head, bool sequence_parallel,
                       const SplitChoices& choices = {});

}  // namespace shardline
