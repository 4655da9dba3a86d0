// The machines of a plan: a JSON file of numbers that data sheets state. docs/planner.md has its keys.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "core/files/json_reader.h"

namespace shardline {

enum class Precision { fp32, fp16, bf16 };
const char* to_string(Precision precision);
inline int value_bytes(Precision precision) {
  return precision == Precision::fp32 ? 4 : 2;
}

// Per device and direction.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// The only two constants that no data sheet states. The defaults come from odd rows of a published table
// (docs/planner.md); a cluster file may set its own.
struct Efficiencies {
  double matrix = 0.77;  // of the peak rate, by an endless product
  double link = 0.8;     // of a link's rate, by long messages
  double memory = 0.8;   // of the memory's rate, by sweeps: so on every device that we know of; not in the file
};

struct Cluster {
  static constexpr int kMostNodes = 100'000, kMostDevicesOfNode = 4096;  // their product is an int

  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  std::optional<double> hourly_price, spot_price;  // per node

  std::string device;
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  std::map<Precision, double> peak_flops;  // per second
  int multiprocessors = 0;                 // 0: no tiles to count
  double launch_seconds = 4e-6;            // of a kernel that follows another one

  Link intra_node, inter_node, host;        // host: to the memory of the host, for offloading
  double host_memory_bytes_per_second = 0;  // of the host's memory, a device's share; 0: not stated
  Efficiencies efficiencies;

  int devices() const { return nodes * devices_per_node; }
  int node_of(int rank) const { return rank / devices_per_node; }
  double peak(Precision precision) const;  // ConfigError when the device cannot compute with it
};

// Throws one ConfigError that lists all mistakes: unknown, missing, negative and contradictory values.
Cluster cluster_from_json(const JsonDocument& document);
Cluster read_cluster(const std::string& path);

}  // namespace shardline
