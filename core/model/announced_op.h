// Announces an op of ours the way ATen announces its own, so that torch's profilers and the layer profile see its name
// and its tensors. Costs almost nothing without listeners.
#pragma once
#include <ATen/record_function.h>

// First in the op's block: SL_ANNOUNCE_OP("shardline::layer_norm_forward", x, weight);
#define SL_ANNOUNCE_OP(name, ...) RECORD_FUNCTION(name, std::vector<c10::IValue>({__VA_ARGS__}))
