// What the decoder families share around their blocks. The first layer turns words (and positions) into hidden states,
// the last one turns these into words. Units: "embedding.wte" and "head.lm_head".
#pragma once
#include <functional>

#include "models/families/causal_config.h"
#include "models/families/spec_maker.h"

namespace shardline {

LayerSpec causal_embedding(const CausalConfig& config, const SpecMaker& make);
LayerSpec causal_head(const CausalConfig& config, const SpecMaker& make);

// A whole model; block(i) makes block i, counted from 0.
ModelSpec causal_spec(const std::string& family, const CausalConfig& config, const SpecMaker& make,
                      const std::function<LayerSpec(int64_t)>& block);

}  // namespace shardline
