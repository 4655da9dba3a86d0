// This machine as a cluster, for plans without a cluster file.
#pragma once
#include "partitioner/cluster.h"

namespace shardline {

// `hosts` nodes like this one, each with `ranks_per_host` CPU ranks that share its cores and its memory equally. Memory
// and cores are the machine's own; rates and links are estimates of their order, good enough to compare layers with
// each other. Ranks on GPUs are not described yet.
Cluster local_cluster(int ranks_per_host, int hosts = 1);

// Cores that this process may use.
int usable_cores();

}  // namespace shardline
