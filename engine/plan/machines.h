// The machines that a plan is made for.
#pragma once
#include <memory>
#include <optional>

#include "engine/config/keys/options.h"
#include "partitioner/layout/layout.h"

namespace shardline {

// What a plan may assume in place of what the config and its cluster file say.
struct Assumptions {
  std::optional<int> nodes;
  std::optional<Precision> precision;      // unset: the config's
  std::shared_ptr<const Profile> profile;  // unset: the config's
};

// The machines that the config names in `cluster`, as many as it has hosts; without a name this machine, with the rates
// that the profile measured. ConfigError for what is wrong with the file, or missing in it.
Cluster planning_cluster(const Config& config, int world_size, const Assumptions& assumed = {});

// That cluster, with the config's profile. Throws ConfigError, also for a profile of another job.
Machines planning_machines(const Config& config, const Workload& workload, int world_size,
                           const Assumptions& assumed = {});

// Throws ConfigError where the ranks do not fit on the cluster's devices, nodes have no link between them, or devices
// none to their host although something is offloaded.
void require_links(const Cluster& cluster, const Layout& layout);

// Whether the config's cluster is this machine.
bool plans_for_this_machine(const Config& config);

// Whether the ranks of the plan have GPUs: a file's machines do unless the config says CPUs.
bool has_accelerators(const Config& config);

}  // namespace shardline
