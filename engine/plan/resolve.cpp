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
GatherWay gather_way(const Config& config) {
  if (has_accelerators(config)) return GatherWay::rings;
  return config.smp.sdp_hierarchical_allgather ? GatherWay::two_steps : GatherWay::messages;
}

// The strategy of a layout that the search made; the search recomputes all blocks alike.
Recompute strategy_of_blocks(const Layout& layout) {
  const auto found = std::ranges::find_if(layout.recompute, [](const Recompute& r) { return r != Recompute{}; });
  return found == layout.recompute.end() ? Recompute{} : *found;
}

// The properties of this engine with the config's optimizer.
Software software_of(const Config& config, const ModelSpec& spec) {
  const OptimizerOptions optimizer = optimizer_options(config.training);
  const int width = width_of(number_types(config).exact);
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

}  // namespace

Workload resolve_workload(const Config& config, const ModelSpec& spec, int64_t global_batch,
                          const std::optional<Precision>& assumed) {
  return {.spec = spec,
          .sequence_length = config.data.sequence_length,
          .global_batch = global_batch,
          .types = number_types(config, assumed.value_or(precision_of(config))),
          .optimizer = optimizer_options(config.training),
          .software = software_of(config, spec)};
}

Layout resolve_choices(const Config& config, const ModelSpec& spec, const Layout& sizes) {
  const SmpOptions& smp = config.smp;
  Layout layout = sizes;
  layout.placement = smp.placement_strategy;
  layout.schedule = smp.pipeline;
  layout.chunks_per_stage = smp.virtual_pipeline_degree;
  // The schedule "simple" processes an accumulation in waves: the microbatches of one accumulation step at a time.
  layout.active_microbatches = smp.active_microbatches.value_or(
      smp.pipeline.kind == ScheduleKind::simple ? sizes.microbatches_per_accumulation() : 0);
  layout.recompute = recompute_by_layer(smp.activation_checkpointing, spec);
  layout.offload = {smp.offload_activations, smp.activation_loading_horizon, smp.offload_scope == OffloadScope::all};
  layout.sequence_parallel = smp.sequence_parallel();
  layout.sharding = sharding_of(smp, sizes.replicas);
  layout.states_on_host = states_on_host(smp, has_accelerators(config));
  return layout;
}

Layout resolve_layout(const Config& config, const ModelSpec& spec, int world_size) {
  return resolve_choices(config, spec, resolve_sizes(config, world_size));
}

ResolvedRun resolve(const Config& config, const ModelSpec& spec, int world_size,
                    const std::optional<Precision>& precision) {
  const Layout layout = resolve_layout(config, spec, world_size);
  return {resolve_workload(config, spec, layout.global_batch(), precision), layout};
}

void set_sharding(SmpOptions& smp, const Sharding& sharding) {
  using Level = Sharding::Level;
  const Level level = sharding.degree > 1 ? sharding.level : Level::none;
  smp.shard_optimizer_state = level == Level::optimizer || level == Level::gradients;
  smp.shard_gradients = level == Level::gradients;
  smp.sharded_data_parallel_degree = level == Level::weights ? sharding.degree : 1;
}

Config with_layout(const Config& config, const Layout& from, const Layout& layout, Precision precision) {
  Config to = config;
  SmpOptions& smp = to.smp;
  if (precision != precision_of(config)) {
    to.training.bf16 = precision == Precision::bf16;
    to.training.fp16 = precision == Precision::fp16;
  }
  smp.pipeline_parallel_degree = layout.pipeline;
  smp.tensor_parallel_degree = layout.tensor;
  smp.placement_strategy = layout.placement;
  if (layout.microbatches != from.microbatches || layout.replicas != from.replicas) {
    smp.microbatches = layout.microbatches;
    to.training.global_batch_size = static_cast<int>(layout.global_batch());
    to.training.per_device_train_batch_size.reset();
    to.training.gradient_accumulation_steps = 1;
  }
  if (layout.pipeline > 1) {
    smp.pipeline = layout.schedule;
    smp.virtual_pipeline_degree = layout.chunks_per_stage;
  }
  if (layout.tensor > 1) smp.optimize = layout.sequence_parallel ? Optimize::memory : Optimize::speed;
  if (layout.recompute != from.recompute) smp.activation_checkpointing = {{{"*", strategy_of_blocks(layout)}}};
  if (layout.offload != from.offload) {
    smp.offload_activations = layout.offload.enabled;
    if (layout.offload.enabled)
      smp.offload_scope = layout.offload.everything ? OffloadScope::all : OffloadScope::checkpointed;
  }
  if (layout.sharded() != from.sharded() || layout.sharding.degree != from.sharding.degree)
    set_sharding(smp, layout.sharding);
  if (config.mpi.processes_per_host > 0 || layout.replicas > 1)
    to.mpi.processes_per_host = layout.world() / available_hosts(config);
  return to;
}

}  // namespace shardline
