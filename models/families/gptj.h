// GPT-J (Wang and Komatsuzaki 2021) as a list of layers, with the names of Hugging Face's GPTJForCausalLM: no table of
// positions, rotary embedding in attention, and blocks whose attention and MLP share one norm.
#pragma once
#include "core/model/model_spec.h"
#include "models/families/causal_ends.h"

namespace shardline {

// The defaults are HF's. rotary_dim null in the file means all features of a head, which HF itself accepts only with a
// single head.
struct GptjConfig : CausalConfig {
  GptjConfig()
      : CausalConfig{{.vocab_size = 50400,
                      .n_positions = 2048,
                      .n_embd = 4096,
                      .n_layer = 28,
                      .n_head = 16,
                      .rotary_dim = 64,
                      .head_bias = true}} {}
};

// `read` records contradictions as mistakes.
GptjConfig gptj_config(HfConfigReader& read);

HeadClasses gptj_heads();
// See gpt2_spec. The logits' bias belongs to the unit "head.lm_head".
ModelSpec gptj_spec(const GptjConfig& config, const HeadChoice& head, bool sequence_parallel,
                    const SplitChoices& choices = {});

}  // namespace shardline
