#include "engine/local_cluster.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace shardline {
namespace {

constexpr double kFlopsOfCore = 80e9;          // 2.5 GHz x two 8-wide fused multiply-adds of fp32
constexpr double kBandwidthOfCore = 8e9;       // bytes per second of one core that reads and writes
constexpr double kBandwidthOfMachine = 100e9;  // that all of them share at most
constexpr double kOpSeconds = 5e-6;            // what a call of an op costs besides its work
constexpr Link kSharedMemory = {4e9, 10e-6};
constexpr Link kNetwork = {1e9, 50e-6};
constexpr Link kDisk = {0.5e9, 100e-6};

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Cluster local_cluster(int ranks_per_host, int hosts) {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double ranks = ranks_per_host, cores = usable_cores() / ranks;
  Cluster cluster{.name = "local", .nodes = hosts, .devices_per_node = ranks_per_host};
  cluster.device = "CPU";
  cluster.memory_bytes = memory / ranks;
  cluster.memory_bytes_per_second = std::min(cores * kBandwidthOfCore, kBandwidthOfMachine / ranks);
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16})
    cluster.peak_flops[precision] = cores * kFlopsOfCore;
  cluster.launch_seconds = kOpSeconds;
  cluster.intra_node = kSharedMemory;
  cluster.inter_node = kNetwork;
  cluster.host = kDisk;
  cluster.host_memory_bytes_per_second = cluster.memory_bytes_per_second;
  return cluster;
}

}  // namespace shardline
