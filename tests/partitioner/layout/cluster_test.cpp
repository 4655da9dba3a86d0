#include "partitioner/layout/cluster.h"

#include <filesystem>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::cluster_test {
namespace {

Cluster read(const std::string& text) {
  return cluster_from_json(parse_json(text, "c.json"));
}

std::string message(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const char* const kGood = R"({
  "name": "two boxes", "nodes": 2, "devices_per_node": 4, "hourly_price": 10, "spot_price": 3,
  "device": {"name": "X", "memory_gib": 16, "memory_bandwidth_gbs": 900, "peak_tflops": {"fp32": 10, "fp16": 100}},
  "intra_node": {"bandwidth_gbs": 100, "latency_us": 2},
  "inter_node": {"bandwidth_gbs": 5, "latency_us": 10},
  "efficiencies": {"matrix": 0.7}, "sources": {"device": "made up"}})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a cluster file describes what its machines can do") {
  const auto cluster = read(kGood);
  CHECK(cluster.devices() == 8);
  CHECK(cluster.memory_bytes == 16.0 * 1073741824);
  CHECK(cluster.peak(Precision::fp16) == 100e12);
  CHECK(cluster.inter_node.bytes_per_second == 5e9);
  CHECK(cluster.inter_node.latency_seconds == Approx(10e-6));
  CHECK(cluster.efficiencies.matrix == 0.7);
  CHECK(cluster.efficiencies.link == Efficiencies().link);
  CHECK(cluster.host.bytes_per_second == 0);
  CHECK(cluster.host_memory_bytes_per_second == 0);
  CHECK(cluster.host_memory_bytes == 0);
  const auto hosted =
      read(with(kGood, "\"efficiencies\"",
                R"("host": {"bandwidth_gbs": 12, "latency_us": 9, "memory_bandwidth_gbs": 30, "memory_gib": 2},
                                   "efficiencies")"));
  CHECK(hosted.host.bytes_per_second == 12e9);
  CHECK(hosted.host.latency_seconds == Approx(9e-6));
  CHECK(hosted.host_memory_bytes_per_second == 30e9);
  CHECK(hosted.host_memory_bytes == 2147483648);
  CHECK(cluster.node_of(3) == 0);
  CHECK(cluster.node_of(4) == 1);
  CHECK_THROWS_WITH(cluster.peak(Precision::bf16), Catch::Contains("bf16") && Catch::Contains("two boxes"));
}

TEST_CASE("all mistakes of a cluster file are reported at once") {
  const auto text = message(R"({"nodes": -2, "devices_per_node": 8, "spot_price": 5, "hourly_price": 3, "bandwith": 1,
    "device": {"name": "X", "memory_gib": 0, "peak_tflops": {"fp32": 100, "fp16": 50}},
    "intra_node": {"bandwidth_gbs": 100}})");
  for (const char* expected : {"/name", "/nodes", "/spot_price", "/device/memory_gib", "/device/memory_bandwidth_gbs",
                               "/device/peak_tflops/fp16", "/intra_node/latency_us", "bandwith"}) {
    CAPTURE(expected, text);
    CHECK(text.find(expected) != std::string::npos);
  }
}

TEST_CASE("values that contradict each other are refused") {
  CHECK_THAT(message(with(kGood, "\"hourly_price\": 10, ", "")), Catch::Contains("hourly_price"));
  CHECK_THAT(message(with(kGood, "\"spot_price\": 3", "\"spot_price\": 30")),
             Catch::Contains("more than hourly_price"));
  CHECK_THAT(message(with(kGood, "\"inter_node\": {\"bandwidth_gbs\": 5, \"latency_us\": 10},", "")),
             Catch::Contains("/inter_node") && Catch::Contains("missing"));
  CHECK_THAT(message(with(kGood, "0.7", "1.7")), Catch::Contains("/efficiencies/matrix"));
  CHECK_THAT(message(with(kGood, "\"efficiencies\"", R"("host": {"bandwidth_gbs": 12, "memory_bandwith_gbs": 30},
                                                        "efficiencies")")),
             Catch::Contains("/host/latency_us") && Catch::Contains("memory_bandwith_gbs"));
  CHECK_THAT(message(with(kGood, "\"nodes\": 2", "\"nodes\": 2, \"nodes\": 3")), Catch::Contains("nodes"));
  CHECK_THAT(message(with(kGood, "\"nodes\": 2", "\"nodes\": 500000000")), Catch::Contains("<= 100000"));
  // Such a rate would be infinite in bytes per second.
  CHECK_THAT(message(with(kGood, "900", "1e300")), Catch::Contains("/memory_bandwidth_gbs: must be a number"));
  CHECK_THAT(message(with(kGood, "\"latency_us\": 2", "\"latency_us\": 1e308")), Catch::Contains("/latency_us"));
}

TEST_CASE("every cluster file of the repository is read, and every value of its device has a source") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SHARDLINE_CLUSTERS)) {
    CAPTURE(entry.path().string());
    const auto cluster = read_cluster(entry.path().string());
    CHECK(cluster.peak(Precision::fp16) > cluster.peak(Precision::fp32));
    CHECK(cluster.multiprocessors > 0);
    const auto document = read_json_file(entry.path().string());
    CHECK(document.value.at("sources").contains("device"));
    if (cluster.hourly_price) CHECK(document.value.at("sources").contains("hourly_price"));
    ++files;
  }
  CHECK(files >= 5);
}

}  // namespace shardline::cluster_test
