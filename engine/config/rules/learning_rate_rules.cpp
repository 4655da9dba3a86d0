#include "engine/config/rules/learning_rate_rules.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/files/json_text.h"

namespace shardline {
namespace {

using nlohmann::json;
using Shapes = std::vector<std::pair<const char*, RateShape>>;

std::vector<std::string> arguments_of(RateSchedule schedule) {
  switch (schedule) {
    case RateSchedule::linear:
    case RateSchedule::constant:
    case RateSchedule::constant_with_warmup:
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
  }
  return {};
}

// Reads the arguments of one schedule and checks each of them.
class SchedulerArguments {
 public:
  SchedulerArguments(RateSchedule schedule, const json& given) : given_(given) {
    if (given_.is_string()) given_ = json_in_text(given.get<std::string>());
    if (given_.is_null()) given_ = json::object();
    if (!given_.is_object()) throw ConfigError("must be an object; write it as {\"num_cycles\": 0.5}");
    const std::vector<std::string> names = arguments_of(schedule);
    for (const auto& [name, value] : given_.items())
      if (std::find(names.begin(), names.end(), name) == names.end())
        throw ConfigError(cat("lr_scheduler_type \"", word_of(schedule), "\" has no argument \"", name, "\"; ",
                              names.empty() ? "leave it out: it takes none" : "it takes " + json(names).dump()));
  }

  bool has(const std::string& name) const { return given_.contains(name) && !given_[name].is_null(); }

  double number(const std::string& name, double fallback, double minimum, double maximum) const {
    if (!has(name)) return fallback;
    const json& value = given_[name];
    if (!value.is_number() || !(value.get<double>() >= minimum && value.get<double>() <= maximum))
      throw ConfigError(cat("\"", name, "\" must be a number from ", minimum, " to ", maximum, ", not ", value.dump(),
                            "; give such a number"));
    return value.get<double>();
  }
  int64_t steps(const std::string& name, int64_t fallback, int64_t minimum) const {
    const double value = number(name, fallback, minimum, 2147483647);
    if (value != std::floor(value))
      throw ConfigError(cat("\"", name, "\" must be a whole number, not ", value, "; use ", std::floor(value)));
    return value;
  }
  RateShape shape(const std::string& name, RateShape fallback, const Shapes& shapes) const {
    if (!has(name)) return fallback;
    const json& value = given_[name];
    for (const auto& [word, shape] : shapes)
      if (value == word) return shape;
    json words;
    for (const auto& named : shapes) words.push_back(named.first);
    throw ConfigError(cat("\"", name, "\" is ", value.dump(), "; use one of ", words.dump()));
  }

 private:
  json given_;
};

constexpr double kMany = 1e9;

double share_of_peak(double rate, double peak) {
  return peak > 0 ? rate / peak : 0;
}

void read_smallest_rate(const SchedulerArguments& arguments, LearningRateOptions& options) {
  if (arguments.has("min_lr") == arguments.has("min_lr_rate"))
    throw ConfigError(cat("lr_scheduler_type \"", word_of(options.type),
                          "\" needs either min_lr or min_lr_rate, which is its share of learning_rate; give one of "
                          "them"));
  options.floor = arguments.has("min_lr") ? share_of_peak(arguments.number("min_lr", 0, 0, options.peak), options.peak)
                                          : arguments.number("min_lr_rate", 0, 0, 1);
}

void read_stable_decay(const SchedulerArguments& arguments, std::optional<int64_t> total,
                       LearningRateOptions& options) {
  if (!arguments.has("num_decay_steps"))
    throw ConfigError(
        "lr_scheduler_type \"warmup_stable_decay\" needs num_decay_steps; give the steps at the end in which the "
        "learning rate falls");
  const Shapes shapes = {
      {"linear", RateShape::linear}, {"cosine", RateShape::cosine}, {"1-sqrt", RateShape::one_minus_sqrt}};
  options.decay_steps = arguments.steps("num_decay_steps", 0, 0);
  options.warmup_shape = arguments.shape("warmup_type", RateShape::linear, shapes);
  options.decay_shape = arguments.shape("decay_type", RateShape::cosine, shapes);
  options.floor = arguments.number("min_lr_ratio", 0, 0, 1);
  const int64_t warmup_steps = options.warmup_steps, others = warmup_steps + options.decay_steps;
  options.stable_steps = arguments.steps("num_stable_steps", std::max<int64_t>(0, total.value_or(others) - others), 0);
  if (total && others + (arguments.has("num_stable_steps") ? options.stable_steps : 0) > *total)
    throw ConfigError(cat("warm-up, num_stable_steps and num_decay_steps are ", others + options.stable_steps,
                          " steps, but the run has ", *total, "; make them shorter"));
}

// As in SageMaker's examples, warm-up and plateau are fractions of the decay's steps.
void read_annealing(const SchedulerArguments& arguments, double warmup, std::optional<int64_t> total,
                    LearningRateOptions& options) {
  options.decay_steps = arguments.steps("lr_decay_iters", total.value_or(kMany), 1);
  const double end = options.decay_steps;
  options.warmup_steps = warmup < 1 ? warmup * end : warmup;
  options.decay_shape = arguments.shape("lr_decay_style", RateShape::linear,
                                        {{"linear", RateShape::linear},
                                         {"cosine", RateShape::cosine},
                                         {"exponential", RateShape::exponential},
                                         {"plateau", RateShape::plateau},
                                         {"constant", RateShape::constant}});
  if (arguments.has("plateau") && options.decay_shape != RateShape::plateau)
    throw ConfigError("\"plateau\" is only read with lr_decay_style \"plateau\"; leave one of them out");
  options.plateau_steps = arguments.number("plateau", 0.4, 0, 1) * end;
  options.floor = share_of_peak(arguments.number("min_lr", 0, 0, options.peak), options.peak);
  const double level = options.warmup_steps + (options.decay_shape == RateShape::plateau ? options.plateau_steps : 0);
  if (level >= end)
    throw ConfigError(
        cat("warm-up and plateau are ", level, " steps, but lr_decay_iters is ", end, "; make them shorter"));
}

}  // namespace

LearningRateOptions learning_rate_options(const TrainingOptions& training, std::optional<int64_t> total_steps) {
  const SchedulerArguments arguments(training.lr_scheduler_type, training.lr_scheduler_kwargs);
  LearningRateOptions options{.type = training.lr_scheduler_type,
                              .peak = training.learning_rate,
                              .warmup_steps = training.warmup_steps,
                              .total_steps = total_steps.value_or(0)};
  if (training.warmup_steps < 1) options.warmup_steps = std::ceil(training.warmup_steps * options.total_steps);
  const double cycles = options.type == RateSchedule::cosine_with_restarts ? 1 : 0.5;
  options.cycles = arguments.number("num_cycles", cycles, 0, kMany);
  options.power = arguments.number("power", 1, 0, kMany);
  // As in transformers, the default is the warm-up, if there is one.
  const double timescale = options.warmup_steps > 0 ? options.warmup_steps : 10000;
  options.timescale = arguments.number("timescale", timescale, 1, kMany);
  options.warmup_start = arguments.number("warmup_lr_rate", -1, 0, 1);
  if (options.type == RateSchedule::polynomial) {
    const double end = arguments.number("lr_end", 1e-7, 0, kMany);
    if (end >= options.peak && options.peak > 0)
      throw ConfigError(cat("\"lr_end\" ", end, " must be below learning_rate ", options.peak, "; give a smaller one"));
    options.floor = share_of_peak(end, options.peak);
  }
  if (options.type == RateSchedule::cosine_with_min_lr || options.type == RateSchedule::cosine_warmup_with_min_lr)
    read_smallest_rate(arguments, options);
  if (options.type == RateSchedule::warmup_stable_decay) read_stable_decay(arguments, total_steps, options);
  if (options.type == RateSchedule::annealing) read_annealing(arguments, training.warmup_steps, total_steps, options);
  return options;
}

}  // namespace shardline
