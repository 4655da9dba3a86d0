#include "partitioner/cost/pricing.h"

#include "tests/catch.h"

namespace shardline::pricing_test {
namespace {

// 4 ranks per node; a link between nodes has a tenth of the rate of a link within one.
Cluster four_to_a_node() {
  Cluster cluster{.name = "made up", .nodes = 4, .devices_per_node = 4};
  cluster.memory_bytes_per_second = 1e12;
  cluster.peak_flops = {{Precision::fp32, 1e12}};
  cluster.launch_seconds = 0;
  cluster.intra_node = {10e9, 0};
  cluster.inter_node = {1e9, 0};
  cluster.efficiencies = {.matrix = 1, .link = 1, .memory = 1};
  return cluster;
}

TEST_CASE("over several nodes, a gather in two steps sends each part to a node once, messages once per rank") {
  const Cluster cluster = four_to_a_node();
  const Pricing pricing(cluster, Precision::fp32, 4, false);
  const GroupSpan shards{.size = 8, .per_node = 4};
  // 8 GB: a rank gets 1 GB from its peer on the other node, then 6 GB from the others of its node.
  CHECK(pricing.gathering(8e9, shards, GatherWay::two_steps) == Approx(1 + 0.6));
  CHECK(pricing.gathering(8e9, shards, GatherWay::messages) == Approx(4));
  CHECK(pricing.gathering(8e9, shards, GatherWay::rings) ==
        pricing.collective(Collective::Kind::all_gather, 8e9, shards));
}

TEST_CASE("inside a node, two steps cost the same as one, and they need equally many ranks on each node") {
  const Cluster cluster = four_to_a_node();
  const Pricing pricing(cluster, Precision::fp32, 4, false);
  for (const auto way : {GatherWay::rings, GatherWay::messages, GatherWay::two_steps}) {
    CHECK(pricing.gathering(4e9, {.size = 4, .per_node = 4}, way) == Approx(0.3));
    CHECK(pricing.gathering(4e9, {.size = 1, .per_node = 1}, way) == 0);
  }
  for (const GroupSpan& span : {GroupSpan{.size = 4, .per_node = 1}, GroupSpan{.size = 7, .per_node = 4}})
    CHECK(pricing.gathering(7e9, span, GatherWay::two_steps) == pricing.gathering(7e9, span, GatherWay::messages));
}

}  // namespace
}  // namespace shardline::pricing_test
