// What runtime.dtype, bf16, fp16 and the keys around them come to. bf16 and fp16 may stand in `training`, as in
// transformers, or in `smp_options`, as in SageMaker's library.
#pragma once
#include <c10/core/ScalarType.h>

#include <string>

#include "core/numbers/half_options.h"
#include "engine/config/keys/options.h"
#include "optim/update/loss_scaler.h"
#include "partitioner/layout/cluster.h"

namespace shardline {

struct NumberTypes {
  at::ScalarType values;   // weights as passes see them, and activations inside layers
  at::ScalarType borders;  // activations between layers
  at::ScalarType exact;    // what is trained, gradients, optimizer states, saved files: at least fp32
};
NumberTypes number_types(const Config& config);
NumberTypes number_types(const Config& config, Precision assumed);  // in place of the config's
inline int64_t width_of(at::ScalarType type) {                      // bytes of a number
  return c10::elementSize(type);
}
HalfOptions half_options(const Config& config);

Precision precision_of(const Config& config);  // float64, which is for tests, counts as fp32
// "bf16 with fp32 masters, residuals added in fp32", "float64"
std::string describe_types(const Config& config, Precision precision);
// The same for the config's precision, with the loss scale of fp16: "fp16 with fp32 masters, loss scale from 65536"
std::string describe_numbers(const Config& config);

// Of fp16. Throws ConfigError("RULE; ADVICE") for what is wrong with dynamic_loss_args.
LossScaleOptions loss_scale_options(const TrainingOptions& training);

}  // namespace shardline
