// Times collectives and messages over the groups of a run, at a range of sizes.
#pragma once
#include <c10/core/Device.h>

#include <functional>

#include "core/comm/rank_groups.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// Adds `links` of tensor-parallel groups, of replicas and of stages, if these have several ranks; and the share of the
// gradients' reductions over the replicas that overlapping computation hides. All groups of a kind work at the same
// time, as in training; the slowest counts. Collective over the world.
void measure_links(const RankGroups& groups, at::Device device, Profile& profile,
                   const std::function<void(int64_t, int64_t)>& progress);

}  // namespace shardline
