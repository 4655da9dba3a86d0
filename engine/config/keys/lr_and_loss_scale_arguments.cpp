#include "engine/config/keys/lr_and_loss_scale_arguments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files/json_reader.h"
#include "core/files/json_text.h"
#include "engine/config/keys/choices.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr double kMostOfArgument = 1e9;
constexpr double kLargestScale = 1e38;  // close to the largest fp32 number

struct Bounds {
  double least = 0, most = std::numeric_limits<double>::infinity();
};

template <HasWords Choice>
using Choices = std::vector<Choice>;
using Shapes = Choices<RateShape>;

void read(const std::string& name, const json& value, const Bounds& bounds, double& number) {
  const auto in_bounds = [&](double given) { return given >= bounds.least && given <= bounds.most; };
  if (!value.is_number() || !in_bounds(value.get<double>()))
    throw ConfigError(
        cat("\"", name, "\" must be a number ",
            std::isfinite(bounds.most) ? cat("from ", bounds.least, " to ", bounds.most) : cat(">= ", bounds.least),
            ", not ", value.dump(), "; give such a number"));
  number = value.get<double>();
}

void read(const std::string& name, const json& value, const Bounds& bounds, int64_t& steps) {
  double number = 0;
  read(name, value, bounds, number);
  if (number != std::floor(number))
    throw ConfigError(cat("\"", name, "\" must be a whole number, not ", value.dump(), "; use ", std::floor(number)));
  steps = static_cast<int64_t>(number);
}

void read(const std::string& name, const json& value, const Bounds&, bool& flag) {
  if (!value.is_boolean())
    throw ConfigError(cat("\"", name, "\" must be true or false, not ", value.dump(), "; give one of them"));
  flag = value.get<bool>();
}

template <HasWords Choice>
void read(const std::string& name, const json& value, const Choices<Choice>& choices, Choice& choice) {
  for (const Choice known : choices)
    if (value == word_of(known)) {
      choice = known;
      return;
    }
  throw ConfigError(cat("\"", name, "\" is ", value.dump(), "; use one of ", json(choices).dump()));
}

// Calls visit(name, field, what the argument may be) for every argument.
template <class Arguments, class Visit>
void visit_scheduler(Arguments& arguments, const Visit& visit) {
  const Bounds share{0, 1}, number{0, kMostOfArgument}, steps{0, kMostStepsOfRun};
  const Shapes ends = {RateShape::linear, RateShape::cosine, RateShape::one_minus_sqrt};
  visit("num_cycles", arguments.num_cycles, number);
  visit("power", arguments.power, number);
  visit("timescale", arguments.timescale, Bounds{1, kMostOfArgument});
  visit("lr_end", arguments.lr_end, number);
  visit("min_lr", arguments.min_lr, Bounds{});
  visit("min_lr_rate", arguments.min_lr_rate, share);
  visit("min_lr_ratio", arguments.min_lr_ratio, share);
  visit("warmup_lr_rate", arguments.warmup_lr_rate, share);
  visit("plateau", arguments.plateau, share);
  visit("num_decay_steps", arguments.num_decay_steps, steps);
  visit("num_stable_steps", arguments.num_stable_steps, steps);
  visit("lr_decay_iters", arguments.lr_decay_iters, Bounds{1, kMostStepsOfRun});
  visit("warmup_type", arguments.warmup_type, ends);
  visit("decay_type", arguments.decay_type, ends);
  visit("lr_decay_style", arguments.lr_decay_style,
        Shapes{RateShape::linear, RateShape::cosine, RateShape::exponential, RateShape::plateau, RateShape::constant});
  visit("factor", arguments.factor, share);
  visit("threshold", arguments.threshold, number);
  visit("eps", arguments.eps, number);
  visit("patience", arguments.patience, steps);
  visit("cooldown", arguments.cooldown, steps);
  visit("mode", arguments.mode, Choices<PlateauMode>{PlateauMode::min, PlateauMode::max});
  visit("threshold_mode", arguments.threshold_mode, Choices<ThresholdMode>{ThresholdMode::rel, ThresholdMode::abs});
}

template <class Arguments, class Visit>
void visit_loss_scale(Arguments& arguments, const Visit& visit) {
  const Bounds scale{1e-30, kLargestScale}, steps{1, kMostStepsOfRun};
  visit("init_scale", arguments.init_scale, scale);
  visit("scale_factor", arguments.scale_factor, Bounds{1, kLargestScale});
  visit("scale_window", arguments.scale_window, steps);
  visit("min_scale", arguments.min_scale, scale);
  visit("delayed_shift", arguments.delayed_shift, steps);
  visit("consecutive_hysteresis", arguments.consecutive_hysteresis, Bounds{});
}

// Reads the arguments that `visit_all` names; null counts as not given. unknown: the message about any other argument.
template <class Arguments, class VisitAll, class Unknown>
void read_arguments(const json& given, const char* example, Arguments& arguments, const VisitAll& visit_all,
                    const Unknown& unknown) {
  if (!given.is_object()) throw ConfigError(cat("must be an object; write it as ", example));
  std::vector<std::string> names;
  visit_all([&](const char* name, const auto&, const auto&) { names.push_back(name); });
  for (const auto& [name, value] : given.items())
    if (std::ranges::find(names, name) == names.end()) throw ConfigError(unknown(name, names));
  arguments = {};
  visit_all([&](const char* name, auto& field, const auto& allowed) {
    if (given.contains(name) && !given[name].is_null()) read(name, given[name], allowed, field.emplace());
  });
}

template <class VisitAll>
json object_of(const VisitAll& visit_all) {
  json object = json::object();
  visit_all([&](const char* name, const auto& field, const auto&) {
    if (field) object[name] = *field;
  });
  return object;
}

}  // namespace

void to_json(json& json, const SchedulerArguments& arguments) {
  json = object_of([&](const auto& visit) { visit_scheduler(arguments, visit); });
  if (json.empty()) json = nullptr;
}

void from_json(const json& json, SchedulerArguments& arguments) {
  const auto given = json.is_string() ? json_in_text(json.get<std::string>())
                     : json.is_null() ? nlohmann::json::object()
                                      : json;
  read_arguments(
      given, "{\"num_cycles\": 0.5}", arguments, [&](const auto& visit) { visit_scheduler(arguments, visit); },
      [](const std::string& name, const std::vector<std::string>& names) {
        const std::string near = nearest_word(name, names);
        return cat("no schedule has an argument \"", name, "\"; ",
                   near.empty() ? cat("the arguments are ", nlohmann::json(names).dump())
                                : cat("did you mean \"", near, "\"?"));
      });
}

void to_json(json& json, const LossScaleArguments& arguments) {
  json = object_of([&](const auto& visit) { visit_loss_scale(arguments, visit); });
}

void from_json(const json& json, LossScaleArguments& arguments) {
  read_arguments(
      json, "{\"scale_window\": 1000}", arguments, [&](const auto& visit) { visit_loss_scale(arguments, visit); },
      [](const std::string& name, const std::vector<std::string>& names) {
        return cat("unknown argument \"", name, "\"; known arguments: ", nlohmann::json(names).dump());
      });
  if (arguments.scale_factor == 1) throw ConfigError("\"scale_factor\" must be greater than 1; use 2");
}

}  // namespace shardline
