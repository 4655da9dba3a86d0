// The machines that a plan is made for.
#pragma once
#include <memory>
#include <optional>

#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// Assumptions that replace what the config and its cluster file say.
struct Assumptions {
  std::optional<int> nodes;
  std::optional<Precision> precision;      // unset: the config's
  std::shared_ptr<const Profile> profile;  // unset: the config's
};

// The machines that `cluster` in the config names, with as many nodes as the ranks have hosts and as many devices per
// node as a host has ranks, if the config says so; without `cluster`, this machine, with the rates that the profile
// measured. Throws ConfigError for a cluster file that is wrong or incomplete, and for a profile with a cluster file.
Cluster planning_cluster(const Config& config, int world_size, const Assumptions& assumed = {});

// The planning cluster together with the config's profile. Throws ConfigError, also for a profile of another job.
Machines planning_machines(const Config& config, const Workload& workload, int world_size,
                           const Assumptions& assumed = {});

// Throws ConfigError if the cluster has fewer devices than there are ranks, has no link between its nodes, or has no
// link from its devices to their host although something is offloaded.
void require_links(const Cluster& cluster, const Layout& layout);

// Whether the plan's ranks have GPUs. The machines of a cluster file have, unless the config asks for CPUs.
bool has_accelerators(const Config& config);

}  // namespace shardline
