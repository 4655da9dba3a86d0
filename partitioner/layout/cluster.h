// The machines of a plan: a JSON file with numbers from data sheets. docs/planner.md describes its keys.
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

// Rates are per device and direction.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// The fractions of the data sheets' rates that programs reach, which no data sheet states. A cluster file may set
// matrix and link. docs/planner.md explains where the defaults come from.
struct Efficiencies {
  double matrix = 0.77;  // fraction of the peak rate that a large matrix product reaches
  double link = 0.8;     // fraction of a link's rate that long messages reach
  double memory = 0.8;   // fraction of the memory's rate that sweeps reach; not in the file
};

struct Cluster {
  static constexpr int kMostNodes = 100'000, kMostDevicesOfNode = 4096;
  static constexpr int kMostDevices = kMostNodes * kMostDevicesOfNode;

  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  std::optional<double> hourly_price, spot_price;  // per node

  std::string device;
  double memory_bytes = 0;
  double memory_bytes_per_second = 0;
  std::map<Precision, double> peak_flops;  // per second
  int multiprocessors = 0;                 // 0: products are not split into tiles
  double launch_seconds = 4e-6;            // from the start of a kernel to the start of the next

  Link intra_node, inter_node, host;        // host: between the device and its host's memory, for offloading
  double host_memory_bytes_per_second = 0;  // a device's share of the host's memory bandwidth; 0: not stated
  double host_memory_bytes = 0;             // per node; 0: not stated
  Efficiencies efficiencies;

  int devices() const { return nodes * devices_per_node; }
  int node_of(int rank) const { return rank / devices_per_node; }
  // The number of nodes that these ranks need; the last one may not be full.
  int nodes_of(int ranks) const { return (ranks + devices_per_node - 1) / devices_per_node; }
  double peak(Precision precision) const;  // throws ConfigError if the device does not support it
};

// Throws one ConfigError that lists all mistakes: unknown and missing keys, negative and contradictory values.
Cluster cluster_from_json(const JsonDocument& document);
Cluster read_cluster(const std::string& path);

}  // namespace shardline
