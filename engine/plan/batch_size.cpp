#include "engine/plan/batch_size.h"

#include <algorithm>

#include "core/error.h"
#include "core/number_text.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/curve_settings.h"
#include "engine/config/config.h"
#include "engine/config/rules/saving_rules.h"
#include "engine/config/rules/sizes.h"
#include "engine/plan/plan.h"
#include "partitioner/memory/rank_memory.h"

namespace shardline {
namespace {

bool has_valid_sizes(const Config& config) {
  bool valid = true;
  check_sizes(config, configured_world_size(config),
              [&](const std::string&, const std::string&, const std::string&) { valid = false; });
  return valid;
}

// Why the plan does not fit; empty if it does.
std::string lack_of_memory(const ModelSource& model, const Config& config, const Assumptions& assumed) {
  const PlannedModel planned = plan_model(model, config, configured_world_size(config), assumed);
  const PlacedLayers placed = placed_layers(planned.plan);
  const auto memory = has_accelerators(config) ? memory_by_rank(placed) : tensor_bytes_by_rank(placed);
  const auto most = std::ranges::max_element(memory, {}, &MemoryBytes::total);
  const double limit = planned.machines.cluster.memory_bytes;
  if (most->total() <= limit) return "";
  return cat("rank ", most - memory.begin(), " needs ", format_bytes(most->total()), " of ", format_bytes(limit));
}

int64_t global_batch(const Config& config) {
  return resolve_sizes(config, configured_world_size(config)).global_batch();
}

// The state of the checkpoint that the run will continue, as far as this host knows it.
std::optional<TrainerState> state_to_continue(const Config& config) {
  const ResumeSource source = resume_source(config);
  if (source.kind == ResumeSource::Kind::fresh) return {};
  std::vector<std::string> paths;
  if (source.kind != ResumeSource::Kind::path)
    for (const auto& place : checkpoints_in(checkpoint_directory(config))) paths.push_back(place.path);
  if (!source.path.empty()) paths.push_back(source.path);
  for (const auto& path : paths) {
    try {
      return read_trainer_state(path);
    } catch (const Error&) {  // a damaged one is skipped or reported when the run starts
    }
  }
  return {};
}

// A run that has halved its batch size continues with the smaller one.
Config with_batch_of_checkpoint(const Config& config) {
  const auto state = state_to_continue(config);
  if (!state) return config;
  const auto setting = state->curve.find(kGlobalBatchSetting);
  if (setting == state->curve.end() || !setting->is_number_integer()) return config;
  const auto trained = setting->get<int64_t>();
  for (std::optional<Config> smaller = config; smaller; smaller = with_half_batch(*smaller))
    if (global_batch(*smaller) == trained) return *smaller;
  return config;
}

}  // namespace

std::optional<Config> with_half_batch(const Config& config) {
  const TrainingOptions& training = config.training;
  const int samples = resolve_sizes(config, configured_world_size(config)).microbatch_size;
  const int accumulation = training.gradient_accumulation_steps.value_or(1);
  Config half = config;
  const auto is_half = [&] {
    return has_valid_sizes(half) && 2 * resolve_sizes(half, configured_world_size(half)).microbatch_size <= samples;
  };
  if (training.per_device_train_batch_size) {
    for (int size = *training.per_device_train_batch_size / 2; size > 0; --size) {
      half.training.per_device_train_batch_size = size;
      if (training.global_batch_size && training.gradient_accumulation_steps)
        half.training.gradient_accumulation_steps.reset();  // follows from the two others
      if (is_half()) return half;
    }
    return {};
  }
  // Only the global batch is given, with or without accumulation steps.
  for (int steps = 2 * accumulation; steps <= training.global_batch_size.value_or(0); ++steps) {
    half.training.gradient_accumulation_steps = steps;
    if (is_half()) return half;
  }
  return {};
}

Config with_fitting_batch(const Config& config, const Assumptions& assumed) {
  if (!config.training.auto_find_batch_size) return config;
  const ModelSource model = open_model(config);
  for (Config fitting = with_batch_of_checkpoint(config);;) {
    const std::string why = lack_of_memory(model, fitting, assumed);
    if (why.empty()) return fitting;
    const auto half = with_half_batch(fitting);
    if (!half)
      throw ConfigError(cat("/training/auto_find_batch_size: no batch size fits: with the smallest one, ", why,
                            " by the plan; use activation_checkpointing, shard_optimizer_state, more microbatches or "
                            "more ranks"));
    fitting = *half;
  }
}

std::optional<std::vector<std::string>> settings_for_half_batch(const Config& failed) {
  const auto half = with_half_batch(failed);
  return half ? std::optional(settings_between(failed, *half)) : std::nullopt;
}

std::string batch_changes(const Config& from, const Config& to) {
  const Layout was = resolve_sizes(from, configured_world_size(from)),
               is = resolve_sizes(to, configured_world_size(to));
  std::string text;
  const auto add = [&](const char* name, int64_t before, int64_t now) {
    if (before != now) text += cat(text.empty() ? "" : ", ", name, ' ', before, " -> ", now);
  };
  if (to.training.per_device_train_batch_size)
    add("per_device_train_batch_size", from.training.per_device_train_batch_size.value_or(0),
        *to.training.per_device_train_batch_size);
  add("samples in a microbatch", was.microbatch_size, is.microbatch_size);
  add("accumulation steps", was.accumulation_steps, is.accumulation_steps);
  return cat(text, "; the global batch ",
             was.global_batch() == is.global_batch()
                 ? cat("stays ", is.global_batch())
                 : cat("is ", is.global_batch(), " instead of ", was.global_batch()));
}

}  // namespace shardline
