#include "partitioner/layout/cluster.h"

#include "core/error.h"

namespace shardline {
namespace {

// Bounds of the rates, sizes, prices and times in the file, in its units, within which all results are finite.
constexpr double kLeast = 1e-9, kMost = 1e15;

class ClusterReader {
 public:
  explicit ClusterReader(const JsonDocument& document) : root_(document) {}

  Cluster read() {
    Cluster cluster;
    cluster.name = text(root_, "name");
    cluster.nodes = number(root_, "nodes", json_integer(1, Cluster::kMostNodes));
    cluster.devices_per_node = number(root_, "devices_per_node", json_integer(1, Cluster::kMostDevicesOfNode));
    cluster.hourly_price = optional(root_, "hourly_price", json_number(0, kMost));
    cluster.spot_price = optional(root_, "spot_price", json_number(0, kMost));
    read_prices(cluster);
    read_device(cluster);
    cluster.intra_node = link("intra_node", cluster.devices_per_node > 1);
    cluster.inter_node = link("inter_node", cluster.nodes > 1);
    read_host(cluster);
    auto efficiencies = root_.child("efficiencies");
    const auto share = json_number(0.01, 1);
    cluster.efficiencies.matrix = optional(efficiencies, "matrix", share).value_or(cluster.efficiencies.matrix);
    cluster.efficiencies.link = optional(efficiencies, "link", share).value_or(cluster.efficiencies.link);
    efficiencies.report_unknown_keys();
    root_.find("sources", json_any());
    root_.report_unknown_keys();
    root_.throw_problems();
    return cluster;
  }

 private:
  std::string text(JsonReader& reader, const std::string& key) {
    if (!reader.has(key)) reader.fail(key, "is missing", "");
    const auto* value = reader.find(key, json_text());
    return value ? value->get<std::string>() : "";
  }
  double number(JsonReader& reader, const std::string& key, const JsonType& type) {
    if (!reader.has(key)) reader.fail(key, "is missing: must be " + type.describe(), "");
    return optional(reader, key, type).value_or(1);
  }
  std::optional<double> optional(JsonReader& reader, const std::string& key, const JsonType& type) {
    const auto* value = reader.find(key, type);
    return value ? std::optional(value->get<double>()) : std::nullopt;
  }

  void read_prices(const Cluster& cluster) {
    if (!cluster.spot_price) return;
    if (!cluster.hourly_price)
      root_.fail("spot_price", "is given without hourly_price", "state the full price, too");
    else if (*cluster.spot_price > *cluster.hourly_price)
      root_.fail("spot_price", cat("is more than hourly_price, ", *cluster.hourly_price), "swap them?");
  }

  void read_device(Cluster& cluster) {
    auto device = root_.child("device");
    cluster.device = text(device, "name");
    cluster.memory_bytes = number(device, "memory_gib", json_number(kLeast, kMost)) * 1073741824.0;
    cluster.memory_bytes_per_second = number(device, "memory_bandwidth_gbs", json_number(kLeast, kMost)) * 1e9;
    cluster.multiprocessors = optional(device, "multiprocessors", json_integer(1)).value_or(0);
    if (const auto us = optional(device, "launch_us", json_number(0, kMost))) cluster.launch_seconds = *us * 1e-6;
    auto peak = device.child("peak_tflops");
    cluster.peak_flops[Precision::fp32] = number(peak, "fp32", json_number(kLeast, kMost)) * 1e12;
    for (const auto& [key, precision] : {std::pair{"fp16", Precision::fp16}, {"bf16", Precision::bf16}}) {
      const auto rate = optional(peak, key, json_number(kLeast, kMost));
      if (!rate) continue;
      cluster.peak_flops[precision] = *rate * 1e12;
      if (cluster.peak_flops[precision] < cluster.peak_flops[Precision::fp32])
        peak.fail(key, "is less than fp32's rate", "no device is slower with 16 bits; are the values swapped?");
    }
    peak.report_unknown_keys();
    device.report_unknown_keys();
  }

  Link link(const std::string& key, bool needed) {
    if (!root_.has(key)) {
      if (needed) root_.fail(key, "is missing: {bandwidth_gbs, latency_us}, per device and direction", "");
      return {};
    }
    auto reader = root_.child(key);
    const Link link = link_in(reader);
    reader.report_unknown_keys();
    return link;
  }
  Link link_in(JsonReader& reader) {
    return {number(reader, "bandwidth_gbs", json_number(kLeast, kMost)) * 1e9,
            number(reader, "latency_us", json_number(0, kMost)) * 1e-6};
  }

  void read_host(Cluster& cluster) {
    if (!root_.has("host")) return;
    auto reader = root_.child("host");
    cluster.host = link_in(reader);
    const auto memory = optional(reader, "memory_bandwidth_gbs", json_number(kLeast, kMost));
    cluster.host_memory_bytes_per_second = memory.value_or(0) * 1e9;
    cluster.host_memory_bytes = optional(reader, "memory_gib", json_number(kLeast)).value_or(0) * 1073741824.0;
    reader.report_unknown_keys();
  }

  JsonReader root_;
};

}  // namespace

const char* to_string(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : precision == Precision::fp16 ? "fp16" : "bf16";
}

double Cluster::peak(Precision precision) const {
  const auto found = peak_flops.find(precision);
  if (found == peak_flops.end())
    throw ConfigError(cat("the cluster \"", name, "\" does not specify device.peak_tflops.", to_string(precision),
                          " for its ", device, "; add it, or compute with another precision"));
  return found->second;
}

Cluster cluster_from_json(const JsonDocument& document) {
  return ClusterReader(document).read();
}

Cluster read_cluster(const std::string& path) {
  return cluster_from_json(read_json_file(path));
}

}  // namespace shardline
