// Cluster files: accepted numbers are positive and finite, whatever is computed from them.
#include <cmath>
#include <optional>

#include "partitioner/layout/cluster.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::cluster_fuzz {
namespace {

bool is_rate(double number) {
  return std::isfinite(number) && number > 0;
}

void check_link(const Link& link, bool needed) {
  FUZZ_REQUIRE(!needed || is_rate(link.bytes_per_second), "a link has ", link.bytes_per_second, " bytes per second");
  FUZZ_REQUIRE(std::isfinite(link.bytes_per_second) && std::isfinite(link.latency_seconds), "a link is infinite");
  FUZZ_REQUIRE(link.bytes_per_second >= 0 && link.latency_seconds >= 0, "a link is negative");
}

}  // namespace

FUZZ_TARGET(cluster) {
  const std::string path = fuzz::file_with("cluster.json", fuzz::text_of(data, size));
  std::optional<Cluster> read;
  if (!fuzz::accepts(size, [&] { read = read_cluster(path); })) return false;
  const Cluster& cluster = *read;
  FUZZ_REQUIRE(cluster.nodes >= 1 && cluster.nodes <= Cluster::kMostNodes, cluster.nodes);
  FUZZ_REQUIRE(cluster.devices_per_node >= 1 && cluster.devices_per_node <= Cluster::kMostDevicesOfNode,
               cluster.devices_per_node);
  FUZZ_REQUIRE(cluster.devices() <= Cluster::kMostDevices && cluster.nodes_of(cluster.devices()) == cluster.nodes,
               cluster.devices());
  FUZZ_REQUIRE(is_rate(cluster.memory_bytes) && is_rate(cluster.memory_bytes_per_second), cluster.memory_bytes);
  FUZZ_REQUIRE(cluster.peak_flops.contains(Precision::fp32), "no rate of fp32");
  for (const auto& [precision, rate] : cluster.peak_flops) FUZZ_REQUIRE(is_rate(rate), to_string(precision));
  FUZZ_REQUIRE(std::isfinite(cluster.launch_seconds) && cluster.launch_seconds >= 0, cluster.launch_seconds);
  check_link(cluster.intra_node, cluster.devices_per_node > 1);
  check_link(cluster.inter_node, cluster.nodes > 1);
  check_link(cluster.host, false);
  FUZZ_REQUIRE(std::isfinite(cluster.host_memory_bytes_per_second), cluster.host_memory_bytes_per_second);
  FUZZ_REQUIRE(cluster.efficiencies.matrix > 0 && cluster.efficiencies.matrix <= 1, cluster.efficiencies.matrix);
  FUZZ_REQUIRE(cluster.efficiencies.link > 0 && cluster.efficiencies.link <= 1, cluster.efficiencies.link);
  FUZZ_REQUIRE(!cluster.spot_price || *cluster.spot_price <= *cluster.hourly_price, *cluster.spot_price);
  for (const auto precision : {Precision::fp32, Precision::fp16, Precision::bf16})
    fuzz::accepts(size, [&] { cluster.peak(precision); });
  return true;
}

}  // namespace shardline::cluster_fuzz
