#include "engine/config/rules/precision_rules.h"

#include "core/error.h"

namespace shardline {
namespace {

bool is_fp16(const Config& config) {
  return config.training.fp16;
}
bool is_bf16(const Config& config) {
  return config.training.bf16;
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

Config in_evaluation_precision(Config config) {
  TrainingOptions& training = config.training;
  if (training.bf16_full_eval || training.fp16_full_eval) {
    training.bf16 = training.bf16_full_eval;
    training.fp16 = training.fp16_full_eval;
  }
  return config;
}

Config in_float64(Config config) {
  TrainingOptions& training = config.training;
  const TrainingOptions usual;
  training.bf16 = training.fp16 = training.bf16_full_eval = training.fp16_full_eval = false;
  training.fp32_residual_addition = training.attention_in_fp32 = training.query_key_layer_scaling = false;
  training.static_loss_scale = usual.static_loss_scale;
  training.dynamic_loss_scale = usual.dynamic_loss_scale;
  training.dynamic_loss_args = usual.dynamic_loss_args;
  training.tf32 = usual.tf32;
  config.runtime.dtype = FullType::float64;
  return config;
}

LossScaleOptions loss_scale_options(const TrainingOptions& training) {
  LossScaleOptions options;
  if (training.static_loss_scale) {
    options.dynamic = false;
    options.initial = *training.static_loss_scale;
  }
  options.dynamic = training.dynamic_loss_scale.value_or(options.dynamic);
  if (!options.dynamic && !training.static_loss_scale) options.initial = 1;
  const LossScaleArguments given = training.dynamic_loss_args.value_or(LossScaleArguments());
  options.initial = given.init_scale.value_or(options.initial);
  options.factor = given.scale_factor.value_or(options.factor);
  options.window = given.scale_window.value_or(options.window);
  options.least = given.min_scale.value_or(options.least);
  options.delayed_shift = given.delayed_shift.value_or(options.delayed_shift);
  options.consecutive_hysteresis = given.consecutive_hysteresis.value_or(options.consecutive_hysteresis);
  return options;
}

}  // namespace shardline
