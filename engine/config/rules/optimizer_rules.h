// What optim, optim_args, weight_decay, no_decay_patterns and the keys of Adam and clipping come to.
#pragma once
#include "engine/config/keys/options.h"
#include "optim/update/optimizer_options.h"

namespace shardline {

// Throws ConfigError("RULE; ADVICE") for optim_args that the optimizer does not take.
OptimizerOptions optimizer_options(const TrainingOptions& training);

// Whether optimizer states and fp32 masters are on the host. On CPU ranks they are in its memory anyway.
inline bool states_on_host(const SmpOptions& smp, bool on_accelerators) {
  return smp.offload_optimizer_states && on_accelerators;
}

// Takes weight decay off the parameters that a pattern finds: a regular expression that matches anywhere in the
// parameter's full name or in the name of one of its tensors in a Hugging Face file. Throws ConfigError for a pattern
// that is not a regular expression or matches nothing.
void exclude_from_decay(const std::vector<std::string>& patterns, ModelSpec& spec);

}  // namespace shardline
