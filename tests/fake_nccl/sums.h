// The numbers that the tests' NCCL supports, and how it adds them.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "core/comm/communicator_reduce.h"
#include "core/comm/nccl/nccl_api.h"

namespace shardline::fake {

at::ScalarType scalar_type(NcclType type);

// Like reduce_in_order, but rounds at each hop if round_at_each_hop() is true.
void reduce_as_nccl(ReduceOp op, at::ScalarType type, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, int64_t count);

}  // namespace shardline::fake
