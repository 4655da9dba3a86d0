#include "engine/plan/planner_case.h"

#include <array>
#include <filesystem>

#include "core/error.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/recompute_rules.h"
#include "engine/config/rules/tensor_rules.h"
#include "engine/plan/profile_use.h"
#include "engine/plan/sharding.h"
#include "engine/run/local_cluster.h"
#include "engine/run/ranks.h"
#include "partitioner/layout/profiled_cluster.h"

namespace shardline {
namespace {

void check_links(const Cluster& cluster, const Layout& layout) {
  if (cluster.nodes > 1 && cluster.inter_node.bytes_per_second == 0)
    throw ConfigError(cat("the cluster \"", cluster.name, "\" has ", cluster.nodes,
                          " nodes, but its file states no inter_node link between them; state {bandwidth_gbs, "
                          "latency_us}, per device and direction"));
  if (layout.offload != Offloaded::nothing && cluster.host.bytes_per_second == 0)
    throw ConfigError(cat("smp_options.offload_activations: the cluster \"", cluster.name,
                          "\" states no link to its host; state host: {bandwidth_gbs, latency_us}"));
  if (layout.world() > cluster.devices())
    throw ConfigError(cat("D x P x T = ", layout.replicas, " x ", layout.pipeline, " x ", layout.tensor, " are ",
                          layout.world(), " ranks, but the cluster \"", cluster.name, "\" has ", cluster.nodes,
                          " nodes of ", cluster.devices_per_node,
                          " devices; set its nodes (--nodes), or smaller degrees"));
}

// CPUs talk as core/mpi does, GPUs through NCCL.
GatherWay gather_way(const Config& config) {
  if (has_accelerators(config)) return GatherWay::rings;
  return config.smp.sdp_hierarchical_allgather ? GatherWay::two_steps : GatherWay::messages;
}

Recomputed recomputed(Recompute::What what) {
  switch (what) {
    case Recompute::What::nothing:
      return Recomputed::nothing;
    case Recompute::What::attention:
      return Recomputed::core;
    case Recompute::What::layers:
      return Recomputed::blocks;
  }
  return Recomputed::nothing;
}

Layout layout_of(const Config& config, const ModelSpec& spec, const ResolvedSizes& sizes) {
  const SmpOptions& smp = config.smp;
  Layout layout{.tensor = sizes.tensor,
                .pipeline = sizes.pipeline,
                .replicas = sizes.replicas,
                .placement = smp.placement_strategy,
                .microbatch_size = sizes.microbatch_size,
                .microbatches = sizes.microbatches * sizes.accumulation_steps,
                .schedule = smp.pipeline,
                .chunks_per_stage = smp.virtual_pipeline_degree,
                .active_microbatches = active_microbatches_of(config, sizes),
                .recomputed = recomputed_of(config, spec)};
  layout.sequence_parallel = is_sequence_parallel(smp);
  layout.offload = offloaded_of(config, spec);
  const Sharding sharding = sharding_of(smp, sizes.replicas);
  layout.sharded = sharding.degree > 1 ? static_cast<int>(sharding.stage) : 0;
  layout.sharding_degree = layout.sharded > 0 ? sharding.degree : 0;
  return layout;
}

std::shared_ptr<const Profile> profile_of(const Config& config, const Assumptions& assumed) {
  if (assumed.profile || config.profile.empty()) return assumed.profile;
  if (!std::filesystem::exists(config.profile))
    throw ConfigError(cat("/profile: there is no file ", config.profile, "; make it with shardline profile"));
  return std::make_shared<const Profile>(read_profile(config.profile));
}

// Measurements of another job say nothing about this one. What depends on the layout is looked up layout by layout.
void require_profile_of_job(const Config& config, const Job& job) {
  if (!job.profile) return;
  const auto different = mismatch(*job.profile, job_conditions(config, job.spec, job.precision));
  if (!different.empty())
    throw ConfigError(cat("/profile: ", config.profile, config.profile.empty() ? "" : " ", "was measured with ",
                          different, "; measure again with shardline profile, or leave it out"));
}

// This host, with the GPUs that it has where the config does not want CPUs.
Cluster cluster_here(const Config& config, int ranks_per_host, int hosts) {
  const auto gpu = has_accelerators(config) ? gpu_facts(0) : std::nullopt;
  return gpu ? local_gpu_cluster(*gpu, gpu_count(), ranks_per_host, hosts) : local_cluster(ranks_per_host, hosts);
}

// A profile has no link to where activations and states are moved out to.
Cluster measured_cluster(const Profile& profile, int world_size, const Cluster& local) {
  Cluster cluster = profiled_cluster(profile, world_size);
  cluster.host = local.host;
  cluster.host_memory_bytes_per_second = local.host_memory_bytes_per_second;
  return cluster;
}

void check_host(const Cluster& cluster) {
  if (cluster.host.bytes_per_second == 0 || cluster.host_memory_bytes_per_second == 0)
    throw ConfigError(cat("smp_options.offload_optimizer_states: the cluster \"", cluster.name, "\" states no ",
                          cluster.host.bytes_per_second == 0 ? "link to its host" : "rate of its host's memory",
                          "; state host: {bandwidth_gbs, latency_us, memory_bandwidth_gbs}, per device"));
}

std::vector<LayerPrice> prices_by_layer(const Config& config, const Job& job, Layout layout, const MeshSpans& spans) {
  const auto recompute = recompute_by_layer(config.smp.activation_checkpointing, job.spec);
  const Pricing pricing(job.cluster, job.precision, job.software.gradient_bytes, job.software.separate_addition,
                        job.profile.get());
  std::vector<LayerPrice> prices;
  for (size_t layer = 0; layer < recompute.size(); ++layer) {
    layout.recomputed = recomputed(recompute[layer].what);
    prices.push_back(layer_price(job, layout, pricing, spans, layer));
  }
  return prices;
}

}  // namespace

bool plans_for_this_machine(const Config& config) {
  return config.cluster.empty() || config.cluster == "local";
}

bool has_accelerators(const Config& config) {
  const auto& device = config.runtime.device;
  return device != "cpu" && !(plans_for_this_machine(config) && device == "auto" && gpu_count() == 0);
}

int active_microbatches_of(const Config& config, const ResolvedSizes& sizes) {
  // "simple" goes through the steps of an accumulation in waves.
  return config.smp.active_microbatches.value_or(config.smp.pipeline == "simple" ? sizes.microbatches : 0);
}

Recomputed recomputed_of(const Config& config, const ModelSpec& spec) {
  std::array<int, 3> blocks = {};
  const auto by_layer = recompute_by_layer(config.smp.activation_checkpointing, spec);
  for (size_t layer = 0; layer < by_layer.size(); ++layer) {
    if (spec.layers[layer].is_block) ++blocks[static_cast<size_t>(recomputed(by_layer[layer].what))];
  }
  return static_cast<Recomputed>(std::max_element(blocks.begin(), blocks.end()) - blocks.begin());
}

Offloaded offloaded_of(const Config& config, const ModelSpec& spec) {
  if (!config.smp.offload_activations) return Offloaded::nothing;
  if (config.smp.offload_scope == "all") return Offloaded::everything;
  return recomputed_of(config, spec) == Recomputed::blocks ? Offloaded::inputs : Offloaded::nothing;
}

Software software_of(const Config& config, const ModelSpec& spec) {
  const OptimizerOptions optimizer = optimizer_options(config.training);
  const auto width = static_cast<int>(width_of(number_types(config).exact));
  int64_t bytes = 0;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty() && param.trainable)
        bytes += optimizer_state_bytes(optimizer, param, param.numel(), width);
  return {.gradient_bytes = width,
          .optimizer_bytes = static_cast<double>(bytes) / static_cast<double>(spec.parameter_count()),
          .gather_way = gather_way(config),
          .own_ops = true};
}

Cluster planning_cluster(const Config& config, int world_size, const Assumptions& assumed) {
  const int hosts = used_hosts(config);
  const bool here = plans_for_this_machine(config);
  if (here && world_size % hosts != 0)
    throw ConfigError(cat("/mpi_options/hosts: the ", world_size, " ranks must be a multiple of the ", hosts,
                          " hosts; change the degrees, processes_per_host or hosts"));
  const auto profile = here ? profile_of(config, assumed) : nullptr;
  Cluster cluster = here ? cluster_here(config, world_size / hosts, hosts) : read_cluster(config.cluster);
  if (profile) cluster = measured_cluster(*profile, world_size, cluster);
  if (!config.mpi.hosts.empty()) cluster.nodes = hosts;
  cluster.nodes = assumed.nodes.value_or(cluster.nodes);
  if (states_on_host(config.smp, has_accelerators(config))) check_host(cluster);
  return cluster;
}

PlannerCase planner_case(const Config& config, const ModelSpec& spec, const ResolvedSizes& sizes,
                         const Assumptions& assumed) {
  const int world = sizes.replicas * sizes.pipeline * sizes.tensor;
  PlannerCase planned{.job = {.cluster = planning_cluster(config, world, assumed),
                              .spec = spec,
                              .sequence_length = config.data.sequence_length,
                              .global_batch = sizes.global_batch,
                              .precision = assumed.precision.value_or(precision_of(config)),
                              .fp32_borders = config.training.fp32_residual_addition,
                              .software = software_of(config, spec),
                              .whole_below = whole_below(config.smp),
                              .loading_horizon = config.smp.activation_loading_horizon,
                              .states_on_host = states_on_host(config.smp, has_accelerators(config)),
                              .profile = profile_of(config, assumed)},
                      .layout = layout_of(config, spec, sizes)};
  require_profile_of_job(config, planned.job);
  check_links(planned.job.cluster, planned.layout);
  planned.spans = mesh_spans(planned.layout.mesh(), planned.job.cluster.devices_per_node, planned.layout.shards());
  planned.prices = prices_by_layer(config, planned.job, planned.layout, planned.spans);
  return planned;
}

}  // namespace shardline
