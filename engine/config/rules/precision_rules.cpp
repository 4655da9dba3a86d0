#include "engine/config/rules/precision_rules.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace shardline {
namespace {

using nlohmann::json;

bool is_fp16(const Config& config) {
  return config.training.fp16;
}
bool is_bf16(const Config& config) {
  return config.training.bf16;
}

constexpr double kLargestScale = 1e38;  // close to the largest fp32 number

// Reads an argument of dynamic_loss_args, a number of at least `minimum`.
double loss_argument(const json& given, const char* name, double fallback, double minimum) {
  if (!given.contains(name)) return fallback;
  const json& value = given[name];
  if (!value.is_number() || !(value.get<double>() >= minimum && value.get<double>() <= kLargestScale))
    throw ConfigError(cat("\"", name, "\" must be a number from ", minimum, " to ", kLargestScale, ", not ",
                          value.dump(), "; give one"));
  return value.get<double>();
}

int64_t loss_steps(const json& given, const char* name, int64_t fallback) {
  const double value = loss_argument(given, name, fallback, 1);
  if (value != std::floor(value))
    throw ConfigError(cat("\"", name, "\" must be a whole number, not ", value, "; use ", std::floor(value)));
  return value;
}

void check_names(const json& given) {
  const std::vector<std::string> names = {"init_scale", "scale_factor",  "scale_window",
                                          "min_scale",  "delayed_shift", "consecutive_hysteresis"};
  if (!given.is_object()) throw ConfigError("must be an object; write it as {\"scale_window\": 1000}");
  for (const auto& [name, value] : given.items())
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw ConfigError(cat("there is no argument \"", name, "\"; it takes ", json(names).dump()));
}

}  // namespace

NumberTypes number_types(const Config& config) {
  return number_types(config, precision_of(config));
}

NumberTypes number_types(const Config& config, Precision assumed) {
  const auto values = assumed == Precision::bf16 ? at::kBFloat16 : assumed == Precision::fp16 ? at::kHalf : at::kFloat;
  if (values == at::kFloat && config.runtime.dtype == FullType::float64) return {at::kDouble, at::kDouble, at::kDouble};
  return {values, config.training.fp32_residual_addition ? at::kFloat : values, at::kFloat};
}

HalfOptions half_options(const Config& config) {
  if (precision_of(config) == Precision::fp32) return {};
  return {.border = number_types(config).borders,
          .attention_in_fp32 = config.training.attention_in_fp32,
          .query_key_layer_scaling = config.training.query_key_layer_scaling};
}

Precision precision_of(const Config& config) {
  return is_bf16(config) ? Precision::bf16 : is_fp16(config) ? Precision::fp16 : Precision::fp32;
}

bool uses_tf32(const Config& config) {
  return config.training.tf32.value_or(false);
}

std::string describe_types(const Config& config, Precision precision) {
  if (precision == Precision::fp32)
    return cat(word_of(config.runtime.dtype), uses_tf32(config) ? ", products in TF32" : "");
  std::string text = cat(to_string(precision), " with fp32 masters");
  if (config.training.fp32_residual_addition) text += ", residuals added in fp32";
  if (config.training.attention_in_fp32) text += ", attention in fp32";
  if (config.training.query_key_layer_scaling) text += ", scores scaled by layer";
  return text;
}

std::string describe_numbers(const Config& config) {
  const std::string text = describe_types(config, precision_of(config));
  if (precision_of(config) != Precision::fp16) return text;
  const LossScaleOptions scale = loss_scale_options(config.training);
  return cat(text, ", loss scale ", scale.dynamic ? "from " : "", scale.initial);
}

LossScaleOptions loss_scale_options(const TrainingOptions& training) {
  LossScaleOptions options;
  if (training.static_loss_scale) {
    options.dynamic = false;
    options.initial = *training.static_loss_scale;
  }
  options.dynamic = training.dynamic_loss_scale.value_or(options.dynamic);
  if (!options.dynamic && !training.static_loss_scale) options.initial = 1;
  const json& given = training.dynamic_loss_args;
  if (given.is_null()) return options;
  check_names(given);
  options.initial = loss_argument(given, "init_scale", options.initial, 1e-30);
  options.factor = loss_argument(given, "scale_factor", options.factor, 1);
  options.window = loss_steps(given, "scale_window", options.window);
  options.least = loss_argument(given, "min_scale", options.least, 1e-30);
  options.delayed_shift = loss_steps(given, "delayed_shift", options.delayed_shift);
  if (given.contains("consecutive_hysteresis")) {
    if (!given["consecutive_hysteresis"].is_boolean())
      throw ConfigError(cat("\"consecutive_hysteresis\" must be true or false, not ",
                            given["consecutive_hysteresis"].dump(), "; give one of them"));
    options.consecutive_hysteresis = given["consecutive_hysteresis"].get<bool>();
  }
  if (options.factor <= 1) throw ConfigError("\"scale_factor\" must be greater than 1; use 2");
  return options;
}

}  // namespace shardline
