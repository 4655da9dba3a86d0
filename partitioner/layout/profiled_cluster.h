// The machines that a profile was measured on, as a cluster to plan for.
#pragma once
#include "partitioner/layout/cluster.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// A device for each of the `world` ranks, as many on a node as when the profile was measured. Its rates are those that
// a rank reached while all others worked, so all efficiencies are 1; its links are as slow as the slowest measured one,
// and have no rate if there is only one rank. It has no price.
Cluster profiled_cluster(const Profile& profile, int world);

}  // namespace shardline
