// The number types that runtime.dtype, bf16, fp16 and related keys define. bf16 and fp16 may be in `training`, as in
// transformers, or in `smp_options`, as in SageMaker's library.
#pragma once
#include <string>

#include "core/numbers/half_options.h"
#include "core/numbers/number_types.h"
#include "engine/config/keys/options.h"
#include "optim/update/loss_scaler.h"
#include "partitioner/layout/cluster.h"

namespace shardline {

NumberTypes number_types(const Config& config);
NumberTypes number_types(const Config& config, Precision assumed);  // `assumed` replaces the config's
HalfOptions half_options(const Config& config);

Precision precision_of(const Config& config);  // float64, which is for tests, counts as fp32
bool uses_tf32(const Config& config);          // for products of fp32 values
// "bf16 with fp32 masters, residuals added in fp32", "float64"
std::string describe_types(const Config& config, Precision precision);
// The same for the config's precision, with the loss scale of fp16: "fp16 with fp32 masters, loss scale from 65536"
std::string describe_numbers(const Config& config);

// The config with which `shardline eval`, `predict` and `serve` run: bf16_full_eval and fp16_full_eval replace the
// precision of training.
Config in_evaluation_precision(Config config);

// The same training in float64, with which `shardline check` compares layouts.
Config in_float64(Config config);

// The loss scale of fp16.
LossScaleOptions loss_scale_options(const TrainingOptions& training);

}  // namespace shardline
