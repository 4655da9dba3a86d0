// Announces one of our ops the way ATen announces its own, so that torch's profilers and the layer profile see its name
// and its tensors. Without listeners it costs almost nothing.
#pragma once
#include <ATen/record_function.h>

// Put it first in the op's block: SL_ANNOUNCE_OP("shardline::layer_norm_forward", x, weight);
#define SL_ANNOUNCE_OP(name, ...) RECORD_FUNCTION(name, std::vector<c10::IValue>({__VA_ARGS__}))
