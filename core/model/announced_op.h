// Announces one of our ops as ATen announces its own, so that torch's profilers and the layer profile see its name and
// tensors. Without listeners it costs almost nothing.
#pragma once
#include <ATen/record_function.h>

// Use it at the start of the op's block: SL_ANNOUNCE_OP("shardline::layer_norm_forward", x, weight);
#define SL_ANNOUNCE_OP(name, ...) RECORD_FUNCTION(name, std::vector<c10::IValue>({__VA_ARGS__}))
