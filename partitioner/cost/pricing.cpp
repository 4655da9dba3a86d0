#include "partitioner/cost/pricing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace shardline {
namespace {

struct Tile {
  int64_t m, n;
};
// Tile sizes that cuBLAS and CUTLASS use with 16-bit tensor cores.
constexpr std::array kTiles = {Tile{256, 128}, Tile{128, 256}, Tile{128, 128}, Tile{256, 64},
                               Tile{64, 256},  Tile{128, 64},  Tile{64, 128},  Tile{64, 64}};

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The rate of a tile relative to that of the largest one, from its multiplications per loaded element: a 128 x 128 tile
// reaches nine tenths, a 64 x 64 tile two thirds.
double tile_share(const Tile& tile) {
  const auto intensity = [](const Tile& t) { return 1.0 * (t.m * t.n) / (t.m + t.n); };
  const double largest = intensity(kTiles.front()), half = largest / 2;
  return intensity(tile) / (intensity(tile) + half) * (largest + half) / largest;
}

}  // namespace

Pricing::Pricing(const Cluster& cluster, Precision precision, int gradient_bytes, bool separate_addition,
                 const Profile* profile)
    : cluster_(cluster),
      profile_(profile),
      value_bytes_(shardline::value_bytes(precision)),
      gradient_bytes_(gradient_bytes),
      separate_addition_(separate_addition),
      flops_(cluster.peak(precision) * cluster.efficiencies.matrix),
      memory_(cluster.memory_bytes_per_second * cluster.efficiencies.memory) {}

double Pricing::tiles(const Product& product) const {
  if (cluster_.multiprocessors == 0) return product.flops() / flops_;
  const double processors = cluster_.multiprocessors;
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const auto count = ceil_div(product.m, tile.m) * ceil_div(product.n, tile.n) * product.count;
    const double waves = std::ceil(count / processors), elements = tile.m * tile.n;
    const double multiply = 2 * elements * product.k / (flops_ / processors * tile_share(tile));
    const double write = product.stored ? elements * value_bytes_ / (memory_ / processors) : 0;
    least = std::min(least, waves * (multiply + write));
  }
  return least;
}

double Pricing::product(const Product& product) const {
  double bytes = 0;
  if (product.stored) {
    const double m = product.m, n = product.n, k = product.k;
    const bool adds = product.phase == Phase::backward_weight && !separate_addition_;
    bytes = product.count * ((m * k + k * n) * value_bytes_ + m * n * (adds ? 2 * gradient_bytes_ : value_bytes_));
  }
  double seconds = std::max(tiles(product), bytes / memory_) + cluster_.launch_seconds;
  if (product.phase == Phase::backward_weight && separate_addition_)
    seconds += sweep(product.m * product.n * (value_bytes_ + 2 * gradient_bytes_));
  return seconds;
}

double Pricing::sweep(double bytes, int kernels) const {
  return bytes / memory_ + kernels * cluster_.launch_seconds;
}

const LinkMeasurement* Pricing::measured(Collective::Kind kind, const GroupSpan& group) const {
  if (!profile_) return nullptr;
  const char* operation = kind == Collective::Kind::all_reduce   ? "all_reduce"
                          : kind == Collective::Kind::all_gather ? "all_gather"
                                                                 : "reduce_scatter";
  return find_link(*profile_, shardline::to_string(group.group), operation, group.size);
}

double Pricing::hidden_share(Collective::Kind kind, const GroupSpan& group) const {
  const auto* link = measured(kind, group);
  return link ? link->hidden : 1;
}

double Pricing::collective(Collective::Kind kind, double bytes, const GroupSpan& group) const {
  if (group.size == 1) return 0;
  if (const auto* link = measured(kind, group)) return link_seconds(*link, bytes);
  return rings(kind == Collective::Kind::all_reduce ? 2 : 1, bytes, group);
}

double Pricing::gathering(double bytes, const GroupSpan& group, GatherWay way) const {
  const auto kind = Collective::Kind::all_gather;
  const bool inside = group.per_node >= group.size;
  if (way == GatherWay::rings || inside || measured(kind, group)) return collective(kind, bytes, group);
  if (way == GatherWay::two_steps && group.per_node > 1 && group.size % group.per_node == 0)
    return rings(1, bytes / group.per_node, {group.nodes(), 1}) + rings(1, bytes, {group.per_node, group.per_node});
  const Link& link = cluster_.inter_node;
  SL_ASSERT(link.bytes_per_second > 0, "the cluster \"", cluster_.name, "\" has no link between nodes");
  const double from_others = bytes * (group.size - group.per_node) / group.size;
  return from_others / (link.bytes_per_second * cluster_.efficiencies.link) + link.latency_seconds +
         cluster_.launch_seconds;
}

double Pricing::rings(int rounds, double bytes, const GroupSpan& group) const {
  const bool inside = group.per_node >= group.size;
  double rate = cluster_.intra_node.bytes_per_second;
  if (!inside) {
    const double adapters = group.per_node * cluster_.inter_node.bytes_per_second;
    rate = group.per_node > 1 ? std::min(rate, adapters) : adapters;
  }
  SL_ASSERT(rate > 0, "the cluster \"", cluster_.name, "\" has no link for a group of ", group.size);
  const double latency = inside ? (group.size - 1) * cluster_.intra_node.latency_seconds
                                : (group.nodes() - 1) * cluster_.inter_node.latency_seconds +
                                      (group.per_node - 1) * cluster_.intra_node.latency_seconds;
  const double passed = bytes * (group.size - 1) / group.size;
  return rounds * (passed / (rate * cluster_.efficiencies.link) + latency) + cluster_.launch_seconds;
}

double Pricing::message(double bytes, bool same_node) const {
  if (const auto* link = profile_ ? find_link(*profile_, "pp", "send", 2) : nullptr) return link_seconds(*link, bytes);
  const Link& link = same_node ? cluster_.intra_node : cluster_.inter_node;
  SL_ASSERT(link.bytes_per_second > 0, "the cluster \"", cluster_.name, "\" has no link between stages");
  return bytes / (link.bytes_per_second * cluster_.efficiencies.link) + link.latency_seconds;
}

double Pricing::to_host(double bytes) const {
  SL_ASSERT(cluster_.host.bytes_per_second > 0, "the cluster \"", cluster_.name,
            "\" does not specify the link to its host");
  return bytes / (cluster_.host.bytes_per_second * cluster_.efficiencies.link) + cluster_.host.latency_seconds;
}

double Pricing::host_sweep(double bytes) const {
  SL_ASSERT(cluster_.host_memory_bytes_per_second > 0, "the cluster \"", cluster_.name,
            "\" does not specify the bandwidth of its host's memory");
  return bytes / (cluster_.host_memory_bytes_per_second * cluster_.efficiencies.memory);
}

}  // namespace shardline
