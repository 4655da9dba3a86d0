#include "engine/plan/resolve.h"

#include "engine/config/keys/recompute_rules.h"
#include "engine/config/keys/tensor_rules.h"
#include "engine/config/rules/optimizer_rules.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/machines.h"
#include "engine/plan/sharding.h"

namespace shardline {
namespace {

// CPU ranks gather as core/comm/mpi does, GPUs through NCCL.
GatherWay gather_way(const Config& config, bool on_accelerators) {
  if (on_accelerators) return GatherWay::rings;
  return config.smp.sdp_hierarchical_allgather ? GatherWay::two_steps : GatherWay::messages;
}

// The strategy of a layout that the search made; the search recomputes all blocks alike.
Recompute strategy_of_blocks(const Layout& layout) {
  const auto found = std::ranges::find_if(layout.recompute, [](const Recompute& r) { return r != Recompute{}; });
  return found == layout.recompute.end() ? Recompute{} : *found;
}

// What the planner must know about this engine when it runs the config's optimizer.
Software software_of(const Config& config, const ModelSpec& spec, bool on_accelerators) {
  const OptimizerOptions optimizer = optimizer_options(config.training);
  const int width = width_of(number_types(config).exact);
  int64_t bytes = 0;
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty() && param.trainable)
        bytes += optimizer_state_bytes(optimizer, param, param.numel(), width);
  return {.gradient_bytes = width,
          .optimizer_bytes = static_cast<double>(bytes) / static_cast<double>(spec.trained_count()),
          .gather_way = gather_way(config, on_accelerators),
          .own_ops = true};
}

// "simple" processes the steps of an accumulation in waves.
int active_microbatches(const SmpOptions& smp, const Layout& layout) {
  return smp.active_microbatches.value_or(
      smp.pipeline.kind == ScheduleKind::simple ? layout.microbatches_per_accumulation() : 0);
}

// Whether the samples of a step are cut into the layout's microbatches.
bool cuts_samples_as(const Layout& layout, const Config& config) {
  bool allowed = true;
  const auto complain = [&](const auto&, const auto&, const auto&) { allowed = false; };
  const Layout sizes = check_sizes(config, layout.world(), complain);
  return allowed && sizes.replicas == layout.replicas && sizes.microbatches == layout.microbatches &&
         sizes.microbatch_size == layout.microbatch_size;
}

bool shards_as(const Layout& layout, const SmpOptions& smp) {
  const Sharding asked = asked_sharding(smp);
  const int degree = asked.degree == 0 ? layout.replicas : asked.degree;
  return asked.level == layout.sharding.level && degree == layout.sharding.degree;
}

void set_precision(Config& config, Precision precision) {
  config.training.bf16 = precision == Precision::bf16;
  config.training.fp16 = precision == Precision::fp16;
  if (precision != Precision::fp32) config.runtime.dtype = FullType::float32;
  if (precision == Precision::fp16) return;
  config.training.static_loss_scale.reset();
  config.training.dynamic_loss_scale.reset();
  config.training.dynamic_loss_args.reset();
  config.training.query_key_layer_scaling = false;
}

void set_ranks(Config& config, const Layout& from, const Layout& layout, const Cluster& cluster) {
  if (layout.world() > 1) {
    auto& communicator = config.runtime.communicator;
    const bool shares_cap = communicator == CommunicatorChoice::threads && config.runtime.memory_cap > 0;
    if (communicator == CommunicatorChoice::local || shares_cap) communicator = CommunicatorChoice::automatic;
    if (communicator != CommunicatorChoice::threads) config.mpi.enabled = true;
  }
  // P x T alone puts the ranks on one host.
  const bool other_hosts =
      layout.world() != from.world() && cluster.nodes_of(layout.world()) > 1 && !hosts_of(config).empty();
  if (config.mpi.processes_per_host > 0 || layout.replicas > 1 || other_hosts)
    place_ranks(config, layout.world(), cluster);
}

void set_schedule(SmpOptions& smp, const Layout& layout) {
  smp.pipeline = layout.schedule;
  smp.virtual_pipeline_degree = layout.chunks_per_stage;
  if (active_microbatches(smp, layout) == layout.active_microbatches) return;
  smp.active_microbatches.reset();
  if (layout.active_microbatches > 0 && active_microbatches(smp, layout) != layout.active_microbatches)
    smp.active_microbatches = layout.active_microbatches;
}

}  // namespace

Workload resolve_workload(const Config& config, const ModelSpec& spec, int64_t global_batch, bool on_accelerators,
                          const std::optional<Precision>& assumed) {
  return {.spec = spec,
          .sequence_length = config.data.sequence_length,
          .global_batch = global_batch,
          .types = number_types(config, assumed.value_or(precision_of(config))),
          .attention_in_fp32 = config.training.attention_in_fp32,
          .optimizer = optimizer_options(config.training),
          .software = software_of(config, spec, on_accelerators)};
}

Layout resolve_choices(const Config& config, const ModelSpec& spec, const Layout& sizes) {
  const SmpOptions& smp = config.smp;
  Layout layout = sizes;
  layout.placement = smp.placement_strategy;
  layout.schedule = smp.pipeline;
  layout.chunks_per_stage = smp.virtual_pipeline_degree;
  layout.active_microbatches = active_microbatches(smp, sizes);
  layout.recompute = recompute_by_layer(smp.activation_checkpointing, spec);
  layout.offload = {smp.offload_activations, smp.activation_loading_horizon, smp.offload_scope == OffloadScope::all};
  layout.sequence_parallel = smp.sequence_parallel();
  layout.sharding = asked_sharding(smp);
  layout.on_accelerators = has_accelerators(config);
  layout.states_on_host = states_on_host(smp, layout.on_accelerators);
  return layout;
}

Layout resolve_layout(const Config& config, const ModelSpec& spec, int world_size) {
  Layout layout = resolve_choices(config, spec, resolve_sizes(config, world_size));
  layout.sharding = sharding_of(config.smp, layout.replicas);
  // By default, evaluations fill the microbatches of a program that takes a fixed number of samples.
  const TrainingOptions usual;
  if (spec.most_samples > 0 && config.training.per_device_eval_batch_size == usual.per_device_eval_batch_size)
    layout.eval_batch = spec.most_samples * layout.microbatches_per_accumulation();
  return layout;
}

ResolvedRun resolve(const Config& config, const ModelSpec& spec, int world_size,
                    const std::optional<Precision>& precision) {
  const Layout layout = resolve_layout(config, spec, world_size);
  return {resolve_workload(config, spec, layout.global_batch(), layout.on_accelerators, precision), layout};
}

void set_sharding(SmpOptions& smp, const Sharding& sharding) {
  using Level = Sharding::Level;
  const Level level = sharding.degree > 1 ? sharding.level : Level::none;
  smp.shard_optimizer_state = level == Level::optimizer || level == Level::gradients;
  smp.shard_gradients = level == Level::gradients;
  smp.sharded_data_parallel_degree = level == Level::weights ? sharding.degree : 1;
  const SmpOptions without;
  if (level == Level::none) smp.sdp_hierarchical_allgather = without.sdp_hierarchical_allgather;
  if (level == Level::weights) return;
  smp.sdp_reduce_bucket_size = without.sdp_reduce_bucket_size;
  smp.sdp_param_persistence_threshold = without.sdp_param_persistence_threshold;
  smp.sdp_max_live_parameters = without.sdp_max_live_parameters;
}

void set_auto_partition(SmpOptions& smp) {
  smp.auto_partition = true;
  smp.default_partition.reset();
  smp.manual_partition = {};
  smp.load_partition = false;
  smp.partition_file.clear();
}

void place_ranks(Config& config, int world_size, const Cluster& cluster) {
  auto hosts = hosts_of(config);
  if (const size_t nodes = cluster.nodes_of(world_size); nodes < hosts.size()) {
    hosts.resize(nodes);
    config.mpi.hosts = hosts;
  }
  config.mpi.processes_per_host = ranks_per_host(config, world_size);
}

Config with_layout(const Config& config, const Layout& from, const Layout& layout, Precision precision,
                   const Cluster& cluster) {
  Config to = config;
  SmpOptions& smp = to.smp;
  if (precision != precision_of(config)) set_precision(to, precision);
  smp.pipeline_parallel_degree = layout.pipeline;
  smp.tensor_parallel_degree = layout.tensor;
  smp.placement_strategy = layout.placement;
  set_ranks(to, from, layout, cluster);
  if (layout.replicas > 1 || layout.tensor > 1)
    if (smp.ddp == false) smp.ddp.reset();
  if (layout.tensor > 1) smp.optimize = layout.sequence_parallel ? Optimize::memory : Optimize::speed;
  if (!cuts_samples_as(layout, to)) {
    smp.microbatches = layout.microbatches_per_accumulation();
    to.training.global_batch_size = static_cast<int>(layout.global_batch());
    to.training.per_device_train_batch_size.reset();
    to.training.gradient_accumulation_steps.reset();
    if (layout.accumulation_steps > 1) to.training.gradient_accumulation_steps = layout.accumulation_steps;
  }
  set_schedule(smp, layout);
  const auto chunks = [](const Layout& of) { return std::tie(of.pipeline, of.schedule, of.chunks_per_stage); };
  if (chunks(layout) != chunks(from)) set_auto_partition(smp);
  if (layout.recompute != from.recompute) smp.activation_checkpointing = {{{"*", strategy_of_blocks(layout)}}};
  if (layout.offload != from.offload) {
    smp.offload_activations = layout.offload.enabled;
    if (layout.offload.enabled)
      smp.offload_scope = layout.offload.everything ? OffloadScope::all : OffloadScope::checkpointed;
  }
  if (!shards_as(layout, smp)) set_sharding(smp, layout.sharding);
  return to;
}

}  // namespace shardline
