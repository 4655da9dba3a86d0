// The optimizer and its settings.
#pragma once
#include <cstdint>
#include <string>

#include "core/model/model_spec.h"

namespace shardline {

struct OptimizerOptions {
  enum class Kind {
    adamw,      // Loshchilov & Hutter 2019, arXiv 1711.05101: weight decay is separate from the gradient
    adam,       // Kingma & Ba 2015, arXiv 1412.6980: weight decay is added to the gradient
    sgd,        // with momentum; weight decay is added to the gradient
    adafactor,  // Shazeer & Stern 2018, arXiv 1804.04235, with the given learning rate
    added,      // by a user's program: see added_optimizer.h
  };
  Kind kind = Kind::adamw;
  double weight_decay = 0;                            // only on ranges that decay
  double max_gradient_value = 0;                      // elements of gradients are limited to +- this; 0: no limit
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adamw, adam
  double momentum = 0, dampening = 0;                 // sgd
  bool nesterov = false;                              // sgd
  std::string added;                                  // the name of an added optimizer
};

// Bytes of optimizer state on a rank that holds `elements` of this parameter, for a type of `element_bytes`.
int64_t optimizer_state_bytes(const OptimizerOptions& options, const ParamSpec& spec, int64_t elements,
                              int64_t element_bytes);

}  // namespace shardline
