// The memory that each rank of a plan will use, computed from the parameters it stores, the activations of its
// instruction list and the messages between stages. The program counts the same bytes while it runs
// (core/memory/caching_allocator.h).
#pragma once
#include <vector>

#include "engine/plan/plan.h"
#include "partitioner/memory/memory_estimate.h"

namespace shardline {

// By rank. activations: kept between instructions; workspace: what passes through layers have in use beside them at
// the worst time; communication: borders on their way between stages.
// On accelerators also what their runtime and communicators take.
std::vector<MemoryBytes> memory_by_rank(const Cluster& cluster, const Plan& plan);

}  // namespace shardline
