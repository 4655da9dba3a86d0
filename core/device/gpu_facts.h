// Facts about this host's GPUs and CUDA software, as reported by the CUDA runtime.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace shardline {

struct GpuFacts {
  std::string name;
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  double clock_hz = 0;  // the maximum clock rate
  int multiprocessors = 0;
  int capability = 0;  // 90: version 9.0
  std::string uuid;    // hexadecimal digits; unique to the GPU
};

// Empty in builds for CPUs, without a driver, or if the GPU does not exist.
std::optional<GpuFacts> gpu_facts(int device);

// CUDA versions are encoded as in CUDA: 13010 is 13.1.
struct GpuSoftware {
  int runtime = 0;  // the version that this process has loaded
  int driver = 0;   // the newest version that the driver supports; 0: no driver is installed
  // The compute capabilities for which this build has code, and those for which it has PTX, which the driver can
  // compile for any newer GPU.
  std::vector<int> code, ptx;
  std::string error;  // why CUDA finds no GPU; empty if it finds any
};
// Empty in builds for CPUs.
std::optional<GpuSoftware> gpu_software();

// How two GPUs of this host access each other's memory. CUDA does not report the kind of link. Peers with support for
// atomic operations on each other's memory are reported as NVLink, because PCIe does not support them between GPUs.
enum class GpuLink { nvlink, pcie, host_memory };
GpuLink gpu_link(int from, int to);

}  // namespace shardline
