// This machine as a cluster, for plans without a cluster file.
#pragma once
#include "core/device/gpu_facts.h"
#include "partitioner/layout/cluster.h"

namespace shardline {

// `hosts` nodes like this one, each with `ranks_per_host` CPU ranks that share its cores and its memory equally. Memory
// and cores are the machine's own; rates and links are rough estimates, good enough to compare layers with each other.
Cluster local_cluster(int ranks_per_host, int hosts = 1);

// The same with GPUs: `gpus_per_host` on each host, all like `gpu`, shared equally by the ranks. Memory,
// multiprocessors and clocks are the GPU's own; the rates follow from them according to NVIDIA's tables of operations
// per clock (CUDA C++ Programming Guide, arithmetic instructions; the architectures' white papers, dense tensor cores).
// The links are rough estimates, because a GPU does not report them.
Cluster local_gpu_cluster(const GpuFacts& gpu, int gpus_per_host, int ranks_per_host, int hosts = 1);

// Cores that this process may use.
int usable_cores();

// Bytes of this host's memory, and those that programs can allocate without swapping (all, if the system does not
// report them); within the limits of this process (cgroup_memory.h).
double host_memory_size();
double available_host_memory();

}  // namespace shardline
