// A layer around another one, through which faults are injected into a model.
#pragma once
#include <functional>

#include "core/model/layer.h"

namespace shardline::parity {

// Called in place of inner.forward.
using Around = std::function<Border(Layer& inner, const LayerBuild& build, const Border& input, MicrobatchContext&)>;

void wrap(LayerSpec& layer, const Around& around);

// The layer's local part of a parameter of this name, "lm_head.weight".
Parameter& parameter(const LayerBuild& build, const std::string& name);

}  // namespace shardline::parity
