// The machines on which a profile was measured, as a cluster for planning.
#pragma once
#include "partitioner/layout/cluster.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// Has a device for each of the `world` ranks, as many per node as when the profile was measured. The rates are those
// that a rank reached while all others were busy, so all efficiencies are 1. Its links are as slow as the slowest
// measured link, and have no rate if there is only one rank. It has no price.
Cluster profiled_cluster(const Profile& profile, int world);

}  // namespace shardline
