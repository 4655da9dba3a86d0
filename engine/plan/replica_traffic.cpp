#include "engine/plan/replica_traffic.h"

#include <algorithm>
#include <numeric>

#include "core/comm/hierarchical_gather.h"
#include "core/device/accelerator.h"
#include "core/error.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/observe/format.h"
#include "partitioner/memory/parameter_memory.h"

namespace shardline {
namespace {

// For each group of replicas that share one copy, the hosts of its ranks; such groups exist for every stage and tensor
// rank.
std::vector<std::vector<int>> hosts_of_shard_groups(const Plan& plan, const std::vector<int>& host_of) {
  const Mesh mesh = plan.layout.mesh();
  std::vector<std::vector<int>> groups;
  for (int p = 0; p < mesh.p(); ++p)
    for (int t = 0; t < mesh.t(); ++t)
      for (int d = 0; d < mesh.d(); ++d) {
        if (mesh.shared(d, plan.layout.sharding.degree).part == 0) groups.emplace_back();
        groups.back().push_back(host_of.empty() ? 0 : host_of[mesh.rank({d, p, t})]);
      }
  return groups;
}

bool has_shards(const Plan& plan, std::vector<Segment> (*segments)(const PlacedLayers&, Coordinates)) {
  for (int stage = 0; stage < plan.layout.pipeline; ++stage)
    for (const auto& segment : segments(placed_layers(plan), {0, stage, 0}))
      if (segment.shards > 1) return true;
  return false;
}

}  // namespace

std::string reduction_text(const Config& config, const Plan& plan) {
  const Mesh mesh = plan.layout.mesh();
  const int64_t element = width_of(number_types(config).exact);
  std::vector<double> bytes;
  for (int stage = 0; stage < mesh.p(); ++stage)
    for (const auto& segment : gradient_segments(placed_layers(plan), {0, stage, 0}))
      if (mesh.d() > 1 || (segment.sharing == Sharing::partial && mesh.t() > 1))
        bytes.push_back(segment.length * element);
  if (bytes.empty()) return "";
  std::sort(bytes.begin(), bytes.end());
  const bool by_microbatch =
      plan.layout.sharding.level >= Sharding::Level::gradients && has_shards(plan, gradient_segments);
  return cat(bytes.size(), " segments, ", format_bytes(bytes.front()), " to ", format_bytes(bytes.back()), ", median ",
             format_bytes(bytes[bytes.size() / 2]), ", ",
             format_bytes(std::accumulate(bytes.begin(), bytes.end(), 0.0)), " in total; ",
             by_microbatch ? cat("the sharded ones in each of ", plan.train.microbatches, " microbatches")
                           : "each overlaps with the backward pass of earlier layers");
}

std::string gathering_text(const Plan& plan, const std::vector<int>& host_of, at::Device device) {
  const Sharding& sharding = plan.layout.sharding;
  if (sharding.level == Sharding::Level::none || sharding.degree == 1) return "";
  if (!has_shards(plan, value_segments))
    return "none: every parameter is below sdp_param_persistence_threshold and stays whole";
  if (is_accelerator(device)) return "in one step: NCCL knows the hosts and chooses the algorithm";
  const auto groups = hosts_of_shard_groups(plan, host_of);
  const auto spreads = [](const std::vector<int>& hosts) {
    return std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) != hosts.end();
  };
  if (std::none_of(groups.begin(), groups.end(), spreads))
    return "in one step: the ranks that share a copy are on one host";
  if (!sharding.hierarchical_gather) return "in one step, over several hosts: sdp_hierarchical_allgather is false";
  const auto grid = host_grid(groups.front());
  const auto is_alike = [&](const std::vector<int>& hosts) { return host_grid(hosts) == grid; };
  if (!std::all_of(groups.begin(), groups.end(), is_alike))
    return "in two steps if the ranks that share a copy are spread evenly over several hosts, otherwise in one";
  if (!grid)
    return "in one step: hosts have different numbers of the ranks that share a copy, or these ranks are in no regular "
           "order";
  if (!grid->needs_two_steps())
    return cat("in one step: the ranks that share a copy are on ", grid->hosts, " hosts, one on each");
  return cat("in two steps: between ", grid->hosts, " hosts, then among ", grid->per_host, " ranks of each");
}

}  // namespace shardline
