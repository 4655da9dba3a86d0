// The optimizer that optim, optim_args, weight_decay and the keys of Adam and clipping define.
#pragma once
#include "engine/config/keys/options.h"
#include "optim/update/optimizer_options.h"

namespace shardline {

OptimizerOptions::Kind optimizer_kind(Optim optim);
// Throws ConfigError("RULE; ADVICE") for optim_args that the optimizer does not have.
OptimizerOptions optimizer_options(const TrainingOptions& training);

// Whether optimizer states and fp32 masters are offloaded to the host. CPU ranks have them in host memory anyway.
inline bool states_on_host(const SmpOptions& smp, bool on_accelerators) {
  return smp.offload_optimizer_states && on_accelerators;
}

}  // namespace shardline
