#include "engine/plan/layout_settings.h"

#include <algorithm>

#include "core/error.h"
#include "engine/config/rules/precision_rules.h"
#include "engine/config/rules/sizes.h"

namespace shardline {
namespace {

std::vector<std::string> precision_settings(Precision precision) {
  const auto set = [&](const char* key, Precision one) { return cat(key, "=", precision == one ? "true" : "false"); };
  return {set("training.bf16", Precision::bf16), set("training.fp16", Precision::fp16)};
}

}  // namespace

std::vector<std::string> settings_of(const Config& config, const Layout& layout, const Layout& from,
                                     int64_t global_batch, Precision precision) {
  std::vector<std::string> settings;
  if (precision != precision_of(config)) settings = precision_settings(precision);
  const auto set = [&](const char* key, const auto& value, const auto& old) {
    if (!(value == old)) settings.push_back(cat(key, "=", value));
  };
  set("smp_options.pipeline_parallel_degree", layout.pipeline, from.pipeline);
  set("smp_options.tensor_parallel_degree", layout.tensor, from.tensor);
  if (layout.microbatches != from.microbatches || layout.replicas != from.replicas) {
    const auto& training = config.training;
    set("smp_options.microbatches", layout.microbatches, config.smp.microbatches);
    if (training.global_batch_size != global_batch)
      settings.push_back(cat("training.global_batch_size=", global_batch));
    if (training.per_device_train_batch_size) settings.push_back("training.per_device_train_batch_size=null");
    set("training.gradient_accumulation_steps", 1, training.gradient_accumulation_steps.value_or(1));
  }
  if (layout.pipeline > 1) {
    set("smp_options.pipeline", layout.schedule, config.smp.pipeline);
    set("smp_options.virtual_pipeline_degree", layout.chunks_per_stage, config.smp.virtual_pipeline_degree);
  }
  set("smp_options.placement_strategy", layout.placement, from.placement);
  if (layout.recomputed != from.recomputed)
    settings.push_back(cat("smp_options.activation_checkpointing=", to_string(layout.recomputed)));
  if (layout.tensor > 1)
    set("smp_options.optimize", std::string(layout.sequence_parallel ? "memory" : "speed"), config.smp.optimize);
  if (layout.offload != from.offload) {
    const bool offloads = layout.offload != Offloaded::nothing;
    settings.push_back(cat("smp_options.offload_activations=", offloads ? "true" : "false"));
    if (offloads) set("smp_options.offload_scope", std::string(to_string(layout.offload)), config.smp.offload_scope);
  }
  if (layout.sharded != from.sharded || layout.shards() != from.shards()) {
    const auto sharding = sharding_settings(layout);
    settings.insert(settings.end(), sharding.begin(), sharding.end());
  }
  const bool named = config.mpi.processes_per_host > 0 || layout.replicas > 1;
  if (named)
    set("mpi_options.processes_per_host", layout.world() / available_hosts(config), config.mpi.processes_per_host);
  return settings;
}

std::vector<std::string> sharding_settings(const Layout& layout) {
  const bool without_weights = layout.sharded == 1 || layout.sharded == 2;
  return {cat("smp_options.shard_optimizer_state=", without_weights ? "true" : "false"),
          cat("smp_options.shard_gradients=", layout.sharded == 2 ? "true" : "false"),
          cat("smp_options.sharded_data_parallel_degree=", layout.sharded == 3 ? layout.shards() : 1)};
}

}  // namespace shardline
