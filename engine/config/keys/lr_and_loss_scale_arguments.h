// The keys of `training` that are objects: the arguments of the learning-rate schedule and of the dynamic loss scale.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "optim/update/learning_rate.h"
#include "optim/update/plateau_rate.h"

namespace shardline {

inline constexpr double kMostStepsOfRun = std::numeric_limits<int>::max();

// lr_scheduler_kwargs, with the names of transformers and torch. Unset: the schedule's default.
// engine/config/rules/learning_rate_rules.cpp lists the arguments of each schedule.
struct SchedulerArguments {
  std::optional<double> num_cycles, power, timescale, lr_end, min_lr, min_lr_rate, min_lr_ratio, warmup_lr_rate,
      plateau;
  std::optional<int64_t> num_decay_steps, num_stable_steps, lr_decay_iters;
  std::optional<RateShape> warmup_type, decay_type, lr_decay_style;
  std::optional<double> factor, threshold, eps;
  std::optional<int64_t> patience, cooldown;
  std::optional<PlateauMode> mode;
  std::optional<ThresholdMode> threshold_mode;
  bool operator==(const SchedulerArguments&) const = default;
};
void to_json(nlohmann::json& json, const SchedulerArguments& arguments);  // null if there are none
// An object, or an object as text. Throws ConfigError("RULE; ADVICE").
void from_json(const nlohmann::json& json, SchedulerArguments& arguments);

// dynamic_loss_args. Unset: the default in LossScaleOptions.
struct LossScaleArguments {
  std::optional<double> init_scale, scale_factor, min_scale;
  std::optional<int64_t> scale_window, delayed_shift;
  std::optional<bool> consecutive_hysteresis;
  bool operator==(const LossScaleArguments&) const = default;
};
void to_json(nlohmann::json& json, const LossScaleArguments& arguments);
// Throws ConfigError("RULE; ADVICE").
void from_json(const nlohmann::json& json, LossScaleArguments& arguments);

}  // namespace shardline
