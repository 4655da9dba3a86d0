// The addition that all CPU communicators share so that they agree bit for bit. core/comm/device_moves.cpp follows the
// same rule for device tensors.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"

namespace shardline {

// outputs[k][i] = inputs[0][i] (+) inputs[1][i] (+) ..., added in this order into an accumulator of fp32 or wider (fp64
// for float64, int64 for integers) and rounded once. max: NaN wins. All arrays have `count` elements of `type`. An
// output may be one of the inputs; otherwise arrays must not overlap. Types: see can_reduce.
void reduce_in_order(ReduceOp op, at::ScalarType type, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, int64_t count);

// float64/32/16, bfloat16, int64/32.
bool can_reduce(at::ScalarType type);

}  // namespace shardline
