// Properties of a GPU of this host, as reported by its driver.
#pragma once
#include <optional>
#include <string>

namespace shardline {

struct GpuFacts {
  std::string name;
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  double clock_hz = 0;  // the highest
  int multiprocessors = 0;
  int capability = 0;  // 90: compute capability 9.0
  std::string uuid;    // in hexadecimal digits; no other GPU has it
};

// Empty in builds for CPUs, or if there is no such GPU or no driver.
std::optional<GpuFacts> gpu_facts(int device);

}  // namespace shardline
