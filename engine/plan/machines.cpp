#include "engine/plan/machines.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "engine/config/keys/recompute_rules.h"
#include "engine/config/keys/tensor_rules.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/profile_use.h"
#include "engine/plan/sharding.h"
#include "engine/run/local_cluster.h"
#include "engine/run/ranks.h"
#include "partitioner/layout/profiled_cluster.h"

namespace shardline {
namespace {

std::shared_ptr<const Profile> profile_of(const Config& config, const Assumptions& assumed) {
  if (assumed.profile || config.profile.empty()) return assumed.profile;
  if (!std::filesystem::exists(config.profile))
    throw ConfigError(cat("/profile: the file ", config.profile, " does not exist; create it with shardline profile"));
  return std::make_shared<const Profile>(read_profile(config.profile));
}

// Times that were measured with another workload do not apply. Times that depend on the layout are looked up for each
// layout.
void require_profile_of(const Config& config, const Workload& workload, const Profile& profile) {
  const auto different = mismatch(profile, job_conditions(config, workload.spec, workload.precision()));
  if (!different.empty())
    throw ConfigError(cat("/profile: ", config.profile, config.profile.empty() ? "" : " ", "was measured with ",
                          different, "; measure again with shardline profile, or leave it out"));
}

// This host, with its GPUs unless the config asks for CPUs.
Cluster cluster_here(const Config& config, int ranks_per_host, int hosts) {
  const auto gpu = has_accelerators(config) ? gpu_facts(0) : std::nullopt;
  return gpu ? local_gpu_cluster(*gpu, gpu_count(), ranks_per_host, hosts) : local_cluster(ranks_per_host, hosts);
}

// Tensor cores multiply TF32 at half the rate of bf16, according to the data sheets of A100, H100, B200, RTX 3090 and
// RTX 4090.
void use_tf32(Cluster& cluster) {
  if (cluster.peak_flops.contains(Precision::bf16))
    cluster.peak_flops[Precision::fp32] = cluster.peak(Precision::bf16) / 2;
}

// A profile does not measure the link over which activations and states are offloaded.
Cluster measured_cluster(const Profile& profile, int world_size, const Cluster& local) {
  Cluster cluster = profiled_cluster(profile, world_size);
  cluster.host = local.host;
  cluster.host_memory_bytes_per_second = local.host_memory_bytes_per_second;
  cluster.host_memory_bytes = local.host_memory_bytes;
  return cluster;
}

void check_host(const Cluster& cluster) {
  if (cluster.host.bytes_per_second == 0 || cluster.host_memory_bytes_per_second == 0)
    throw ConfigError(
        cat("smp_options.offload_optimizer_states: the cluster \"", cluster.name, "\" does not specify ",
            cluster.host.bytes_per_second == 0 ? "the link to its host" : "the bandwidth of its host's memory",
            "; specify host: {bandwidth_gbs, latency_us, memory_bandwidth_gbs}, per device"));
}

}  // namespace

bool has_accelerators(const Config& config) {
  const DeviceChoice device = config.runtime.device;
  return device != DeviceChoice::cpu &&
         !(plans_for_this_machine(config) && device == DeviceChoice::automatic && gpu_count() == 0);
}

Cluster planning_cluster(const Config& config, int world_size, const Assumptions& assumed) {
  const int hosts = used_hosts(config);
  const bool here = plans_for_this_machine(config);
  if (here && world_size % hosts != 0)
    throw ConfigError(cat("/mpi_options/hosts: the ", world_size, " ranks must be a multiple of the ", hosts,
                          " hosts; change the degrees, processes_per_host or hosts"));
  if (!here && !config.profile.empty())
    throw ConfigError(cat("/profile: ", config.profile, " was measured on this machine, but /cluster names ",
                          config.cluster, "; leave one of them out, or set cluster to \"local\""));
  const auto profile = here ? profile_of(config, assumed) : nullptr;
  Cluster cluster = here ? cluster_here(config, world_size / hosts, hosts) : read_cluster(config.cluster);
  if (uses_tf32(config) && has_accelerators(config)) use_tf32(cluster);
  if (profile) cluster = measured_cluster(*profile, world_size, cluster);
  const bool on_known_hosts = !config.mpi.hosts.empty() || (uses_all_hosts(config) && !hosts_of(config).empty());
  if (on_known_hosts) cluster.nodes = hosts;
  if (config.mpi.processes_per_host > 0)
    cluster.devices_per_node = std::min(cluster.devices_per_node, config.mpi.processes_per_host);
  cluster.nodes = assumed.nodes.value_or(cluster.nodes);
  if (const double cap = config.runtime.memory_cap; cap > 0) cluster.memory_bytes = std::min(cluster.memory_bytes, cap);
  if (states_on_host(config.smp, has_accelerators(config))) check_host(cluster);
  return cluster;
}

Machines planning_machines(const Config& config, const Workload& workload, int world_size, const Assumptions& assumed) {
  Machines machines{planning_cluster(config, world_size, assumed), profile_of(config, assumed)};
  if (machines.profile) require_profile_of(config, workload, *machines.profile);
  return machines;
}

void require_links(const Cluster& cluster, const Layout& layout) {
  if (cluster.nodes > 1 && cluster.inter_node.bytes_per_second == 0)
    throw ConfigError(
        cat("the cluster \"", cluster.name, "\" has ", cluster.nodes,
            " nodes, but its file does not specify inter_node, the link between them; set it to {bandwidth_gbs, "
            "latency_us}, per device and direction"));
  if (layout.offload.enabled && cluster.host.bytes_per_second == 0)
    throw ConfigError(cat("smp_options.offload_activations: the cluster \"", cluster.name,
                          "\" does not specify the link to its host; specify host: {bandwidth_gbs, latency_us}"));
  if (layout.world() > cluster.devices())
    throw ConfigError(cat("D x P x T = ", layout.replicas, " x ", layout.pipeline, " x ", layout.tensor, " are ",
                          layout.world(), " ranks, but the cluster \"", cluster.name, "\" has ", cluster.nodes,
                          cluster.nodes == 1 ? " node of " : " nodes of ", cluster.devices_per_node,
                          cluster.devices_per_node == 1 ? " device" : " devices",
                          "; set its number of nodes (--nodes), or use smaller degrees"));
}

}  // namespace shardline
