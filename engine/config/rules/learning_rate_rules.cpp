#include "engine/config/rules/learning_rate_rules.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

std::vector<std::string> arguments_of(RateSchedule schedule) {
  switch (schedule) {
    case RateSchedule::linear:
    case RateSchedule::constant:
    case RateSchedule::constant_with_warmup:
    case RateSchedule::added:
      return {};
    case RateSchedule::cosine:
    case RateSchedule::cosine_with_restarts:
      return {"num_cycles"};
    case RateSchedule::polynomial:
      return {"lr_end", "power"};
    case RateSchedule::inverse_sqrt:
      return {"timescale"};
    case RateSchedule::cosine_with_min_lr:
      return {"num_cycles", "min_lr", "min_lr_rate"};
    case RateSchedule::cosine_warmup_with_min_lr:
      return {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"};
    case RateSchedule::warmup_stable_decay:
      return {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"};
    case RateSchedule::annealing:
      return {"lr_decay_style", "lr_decay_iters", "plateau", "min_lr"};
    case RateSchedule::reduce_lr_on_plateau:
      return {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"};
  }
  return {};
}

// Throws ConfigError for arguments of other schedules.
void check_names(const OrAdded<RateSchedule>& schedule, const json& given) {
  const std::vector<std::string> names = arguments_of(schedule);
  for (const auto& [name, value] : given.items())
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError(
          cat("lr_scheduler_type \"", word_of(schedule), "\" has no argument \"", name, "\"; ",
              names.empty() ? "leave it out: this schedule takes none" : "the schedule takes " + json(names).dump()));
}

constexpr int64_t kMany = 1'000'000'000;

double share_of_peak(double rate, double peak) {
  return peak > 0 ? rate / peak : 0;
}

// min_lr, or 0, as a share of the peak.
double smallest_share(const SchedulerArguments& arguments, double peak) {
  const double rate = arguments.min_lr.value_or(0);
  if (rate > peak)
    throw ConfigError(
        cat("\"min_lr\" must be a number from 0 to learning_rate ", peak, ", not ", rate, "; give such a number"));
  return share_of_peak(rate, peak);
}

void read_smallest_rate(const SchedulerArguments& arguments, LearningRateOptions& options) {
  if (arguments.min_lr.has_value() == arguments.min_lr_rate.has_value())
    throw ConfigError(cat("lr_scheduler_type \"", word_of(options.type),
                          "\" needs either min_lr or min_lr_rate, which is its share of learning_rate; give one of "
                          "them"));
  options.floor = arguments.min_lr_rate ? *arguments.min_lr_rate : smallest_share(arguments, options.peak);
}

void read_stable_decay(const SchedulerArguments& arguments, std::optional<int64_t> total,
                       LearningRateOptions& options) {
  if (!arguments.num_decay_steps)
    throw ConfigError(
        "lr_scheduler_type \"warmup_stable_decay\" needs num_decay_steps; give the number of steps at the end "
        "during which the learning rate falls");
  options.decay_steps = *arguments.num_decay_steps;
  options.warmup_shape = arguments.warmup_type.value_or(RateShape::linear);
  options.decay_shape = arguments.decay_type.value_or(RateShape::cosine);
  options.floor = arguments.min_lr_ratio.value_or(0);
  const int64_t warmup_steps = options.warmup_steps, others = warmup_steps + options.decay_steps;
  options.stable_steps = arguments.num_stable_steps.value_or(std::max<int64_t>(0, total.value_or(others) - others));
  if (total && others + arguments.num_stable_steps.value_or(0) > *total)
    throw ConfigError(cat("warm-up, num_stable_steps and num_decay_steps are ", others + options.stable_steps,
                          " steps, but the run has ", *total, "; make them shorter"));
}

// As in SageMaker's examples, warm-up and plateau are fractions of the decay's steps.
void read_annealing(const SchedulerArguments& arguments, double warmup, std::optional<int64_t> total,
                    LearningRateOptions& options) {
  options.decay_steps = arguments.lr_decay_iters.value_or(total.value_or(kMany));
  const double end = options.decay_steps;
  options.warmup_steps = warmup < 1 ? warmup * end : warmup;
  options.decay_shape = arguments.lr_decay_style.value_or(RateShape::linear);
  if (arguments.plateau && options.decay_shape != RateShape::plateau)
    throw ConfigError("\"plateau\" is only used with lr_decay_style \"plateau\"; leave one of them out");
  options.plateau_steps = arguments.plateau.value_or(0.4) * end;
  options.floor = smallest_share(arguments, options.peak);
  const double level = options.warmup_steps + (options.decay_shape == RateShape::plateau ? options.plateau_steps : 0);
  if (level >= end)
    throw ConfigError(
        cat("warm-up and plateau take ", level, " steps, but lr_decay_iters is ", end, "; make them shorter"));
}

}  // namespace

LearningRateOptions learning_rate_options(const TrainingOptions& training, std::optional<int64_t> total_steps) {
  const SchedulerArguments& arguments = training.lr_scheduler_kwargs;
  check_names(training.lr_scheduler_type, arguments);
  LearningRateOptions options{.type = training.lr_scheduler_type,
                              .peak = training.learning_rate,
                              .warmup_steps = training.warmup_steps,
                              .total_steps = total_steps.value_or(0)};
  if (training.warmup_steps < 1) options.warmup_steps = std::ceil(training.warmup_steps * options.total_steps);
  options.cycles = arguments.num_cycles.value_or(options.type == RateSchedule::cosine_with_restarts ? 1 : 0.5);
  options.power = arguments.power.value_or(options.power);
  // As in transformers, the default is the warm-up, if there is one.
  options.timescale = arguments.timescale.value_or(options.warmup_steps > 0 ? options.warmup_steps : options.timescale);
  options.warmup_start = arguments.warmup_lr_rate.value_or(options.warmup_start);
  if (options.type == RateSchedule::polynomial) {
    const double end = arguments.lr_end.value_or(1e-7);
    if (end >= options.peak && options.peak > 0)
      throw ConfigError(cat("\"lr_end\" ", end, " must be below learning_rate ", options.peak, "; give a smaller one"));
    options.floor = share_of_peak(end, options.peak);
  }
  if (options.type == RateSchedule::cosine_with_min_lr || options.type == RateSchedule::cosine_warmup_with_min_lr)
    read_smallest_rate(arguments, options);
  if (options.type == RateSchedule::warmup_stable_decay) read_stable_decay(arguments, total_steps, options);
  if (options.type == RateSchedule::added)
    options.formula = added_rate_schedules().at(training.lr_scheduler_type.added);
  if (options.type == RateSchedule::annealing) read_annealing(arguments, training.warmup_steps, total_steps, options);
  return options;
}

PlateauOptions plateau_options(const TrainingOptions& training) {
  const SchedulerArguments& arguments = training.lr_scheduler_kwargs;
  const PlateauOptions usual;
  if (arguments.factor == 1)
    throw ConfigError("\"factor\" must be below 1; give the factor that multiplies the learning rate, such as 0.1");
  return {.mode = arguments.mode.value_or(usual.mode),
          .factor = arguments.factor.value_or(usual.factor),
          .patience = arguments.patience.value_or(usual.patience),
          .threshold = arguments.threshold.value_or(usual.threshold),
          .threshold_mode = arguments.threshold_mode.value_or(usual.threshold_mode),
          .cooldown = arguments.cooldown.value_or(usual.cooldown),
          .floor = smallest_share(arguments, training.learning_rate),
          .least_change = share_of_peak(arguments.eps.value_or(1e-8), training.learning_rate)};
}

void check_warmup_steps(double steps) {
  if (steps > 1 && steps != std::floor(steps))
    throw ConfigError(cat("must be a whole number of steps, or a share below 1; use ", std::floor(steps)));
}

}  // namespace shardline
