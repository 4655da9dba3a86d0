// The first and the last layer of the decoder families: words (and positions) to hidden states, and back to words.
// Units: "embedding.wte" and "head.lm_head".
#pragma once
#include "models/families/causal_config.h"
#include "models/families/spec_maker.h"

namespace shardline {

LayerSpec causal_embedding(const CausalConfig& config, const SpecMaker& make);
LayerSpec causal_head(const CausalConfig& config, const SpecMaker& make);

}  // namespace shardline
