#include "partitioner/layout/profiled_cluster.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace shardline {
namespace {

// The bytes of a link's operation that pass through one rank, and the number of rounds, in a ring as in
// Pricing::collective.
double passed_bytes(const LinkMeasurement& link, double bytes) {
  if (link.operation == "send") return bytes;
  return bytes * (link.ranks - 1) / link.ranks * (link.operation == "all_reduce" ? 2 : 1);
}
int rounds(const LinkMeasurement& link) {
  return link.operation == "send" ? 1 : (link.ranks - 1) * (link.operation == "all_reduce" ? 2 : 1);
}

Link slowest(const std::vector<LinkMeasurement>& links) {
  Link slowest;
  for (const auto& link : links) {
    const double rate = passed_bytes(link, link.bytes.back()) / link.seconds.back();
    const bool first = slowest.bytes_per_second == 0;
    slowest.bytes_per_second = first ? rate : std::min(slowest.bytes_per_second, rate);
    slowest.latency_seconds = std::max(slowest.latency_seconds, link.seconds.front() / rounds(link));
  }
  return slowest;
}

std::string condition(const Profile& profile, const std::string& what) {
  const auto found = profile.valid_for.find(what);
  if (found == profile.valid_for.end())
    throw DataError(cat("the profile does not state its ", what, "; measure again with shardline profile"));
  return found->second;
}

Precision measured_precision(const DeviceMeasurement& device) {
  for (const auto precision : {Precision::fp32, Precision::fp16, Precision::bf16})
    if (device.precision == to_string(precision)) return precision;
  throw DataError(cat("the profile's device was measured with the precision \"", device.precision,
                      "\", which is not fp32, fp16 or bf16; measure again with shardline profile"));
}

}  // namespace

Cluster profiled_cluster(const Profile& profile, int world) {
  Cluster cluster{.name = "local", .device = condition(profile, "device")};
  cluster.devices_per_node = std::min(world, std::max(1, std::atoi(condition(profile, "ranks_per_host").c_str())));
  cluster.nodes = cluster.nodes_of(world);
  cluster.memory_bytes = profile.device.memory_bytes;
  cluster.memory_bytes_per_second = profile.device.memory_bytes_per_second;
  cluster.peak_flops = {{measured_precision(profile.device), profile.device.flops_per_second}};
  cluster.launch_seconds = profile.device.launch_seconds;
  cluster.efficiencies = {.matrix = 1, .link = 1, .memory = 1};
  cluster.intra_node = cluster.inter_node = slowest(profile.links);
  return cluster;
}

}  // namespace shardline
