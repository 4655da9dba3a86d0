// The first and the last layer of the decoder families. The first layer turns words (and positions) into hidden states;
// the last one turns these into logits of words, or into the outputs of a small head for segments or rows. Units:
// "embedding.wte" and "head.lm_head".
#pragma once
#include <functional>

#include "models/families/head_choice.h"
#include "models/families/spec_maker.h"
#include "models/families/transformer_config.h"

namespace shardline {

class HfConfigReader;

struct CausalConfig : TransformerConfig {
  double classifier_dropout = 0.1;  // for token classification
};

// Reads the keys of the small heads.
void read_causal_heads(HfConfigReader& read, CausalConfig& config);

LayerSpec causal_embedding(const TransformerConfig& config, const SpecMaker& make);
LayerSpec causal_head(const TransformerConfig& config, const SpecMaker& make);

// Describes a whole model; block(i) makes block i, counted from 0.
ModelSpec causal_spec(const std::string& family, const CausalConfig& config, const HeadChoice& head,
                      const SpecMaker& make, const std::function<LayerSpec(int64_t)>& block);

}  // namespace shardline
