// The machines that a plan is made for.
#pragma once
#include <memory>
#include <optional>

#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// Assumptions that replace values of the config and its cluster file.
struct Assumptions {
  std::optional<int> nodes;
  std::optional<Precision> precision;      // unset: the config's
  std::shared_ptr<const Profile> profile;  // unset: the config's
};

// The machines that `cluster` in the config names, with as many nodes as the ranks have hosts and as many devices per
// node as a host has ranks, if the config says so. Without `cluster`, or if it is "local": this machine, with the rates
// that the profile measured. Throws ConfigError for a cluster file that is wrong, for one that lacks what offloaded
// optimizer states need, for a profile with a cluster file, and if this machine's ranks cannot be divided evenly among
// the hosts.
Cluster planning_cluster(const Config& config, int world_size, const Assumptions& assumed = {});

// The planning cluster together with the config's profile. Throws ConfigError as planning_cluster does, and for a
// profile that was measured with another model, optimizer or number type.
Machines planning_machines(const Config& config, const Workload& workload, int world_size,
                           const Assumptions& assumed = {});

// Throws ConfigError if the cluster has fewer devices than the layout has ranks, if it has several nodes but no link
// between them, or if activations are offloaded but it has no link from its devices to their host.
void require_links(const Cluster& cluster, const Layout& layout);

// Whether the plan's ranks have GPUs. The machines of a cluster file always do, unless the config asks for CPUs.
bool has_accelerators(const Config& config);

}  // namespace shardline
