#include "engine/run/local_cluster.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "engine/run/cgroup_memory.h"

namespace shardline {
namespace {

constexpr double kFlopsOfCore = 80e9;          // 2.5 GHz x two 8-wide fused multiply-adds of fp32
constexpr double kBandwidthOfCore = 8e9;       // bytes per second that one core reads and writes
constexpr double kBandwidthOfMachine = 100e9;  // the most that all cores reach together
constexpr double kOpSeconds = 5e-6;            // overhead of a call of an op
constexpr Link kSharedMemory = {4e9, 10e-6};
constexpr Link kNetwork = {1e9, 50e-6};
constexpr Link kDisk = {0.5e9, 100e-6};
constexpr Link kPcie = {12e9, 10e-6};  // between GPUs and to the host

// Operations per clock of one multiprocessor; a multiply-add counts as two.
struct OpsPerClock {
  int oldest;  // compute capability
  double fp32, fp16, bf16;
};
constexpr OpsPerClock kOpsPerClock[] = {
    {120, 256, 512, 512},    // Blackwell for workstations
    {100, 256, 8192, 8192},  // Blackwell
    {90, 256, 4096, 4096},   // Hopper
    {86, 256, 512, 512},     // Ada, and Ampere for workstations
    {80, 128, 2048, 2048},   // Ampere
    {70, 128, 1024, 0},      // Volta, Turing
    {0, 128, 128, 0},
};

const OpsPerClock& ops_per_clock(int capability) {
  return *std::find_if(std::begin(kOpsPerClock), std::end(kOpsPerClock),
                       [&](const OpsPerClock& entry) { return capability >= entry.oldest; });
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max<int>(1, std::thread::hardware_concurrency());
}

double host_memory_size() {
  return std::min(1.0 * sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE), cgroup_memory().limit);
}

double available_host_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    double kibibytes = 0;
    if (key == "MemAvailable:" && file >> kibibytes) return std::min(1024 * kibibytes, cgroup_memory().available);
    std::getline(file, key);
  }
  return host_memory_size();
}

Cluster local_cluster(int ranks_per_host, int hosts) {
  const double ranks = ranks_per_host, cores = usable_cores() / ranks;
  Cluster cluster{.name = "local", .nodes = hosts, .devices_per_node = ranks_per_host};
  cluster.device = "CPU";
  cluster.memory_bytes = host_memory_size() / ranks;
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

Cluster local_gpu_cluster(const GpuFacts& gpu, int gpus_per_host, int ranks_per_host, int hosts) {
  const double sharing = std::max(1.0, 1.0 * ranks_per_host / gpus_per_host);
  const double flops = gpu.multiprocessors * gpu.clock_hz / sharing;
  const OpsPerClock& ops = ops_per_clock(gpu.capability);
  Cluster cluster{.name = "local", .nodes = hosts, .devices_per_node = ranks_per_host};
  cluster.device = gpu.name;
  cluster.memory_bytes = gpu.memory_bytes / sharing;
  cluster.memory_bytes_per_second = gpu.memory_bytes_per_second / sharing;
  cluster.peak_flops = {{Precision::fp32, flops * ops.fp32}, {Precision::fp16, flops * ops.fp16}};
  if (ops.bf16 > 0) cluster.peak_flops[Precision::bf16] = flops * ops.bf16;
  cluster.multiprocessors = gpu.multiprocessors;
  cluster.intra_node = kPcie;
  cluster.inter_node = kNetwork;
  cluster.host = kPcie;
  cluster.host_memory_bytes_per_second = kBandwidthOfMachine / ranks_per_host;
  cluster.host_memory_bytes = host_memory_size();
  return cluster;
}

}  // namespace shardline
