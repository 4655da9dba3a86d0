#include "engine/plan/sharding.h"

#include <algorithm>

#include "core/error.h"

namespace shardline {

namespace {

int64_t elements(double number) {
  return std::min(number, 0x1p53);  // larger thresholds have the same effect
}

}  // namespace

using Level = Sharding::Level;

Sharding asked_sharding(const SmpOptions& smp) {
  Sharding sharding{.whole_below = elements(smp.sdp_param_persistence_threshold),
                    .most_gathered = elements(smp.sdp_max_live_parameters),
                    .most_reduced = elements(smp.sdp_reduce_bucket_size),
                    .hierarchical_gather = smp.sdp_hierarchical_allgather};
  if (smp.sharded_data_parallel_degree > 1) {
    sharding.level = Level::weights;
    sharding.degree = smp.sharded_data_parallel_degree;
  } else if (smp.shard_gradients || smp.shard_optimizer_state) {
    sharding.level = smp.shard_gradients ? Level::gradients : Level::optimizer;
    sharding.degree = 0;
  }
  return sharding;
}

Sharding sharding_of(const SmpOptions& smp, int replicas) {
  Sharding sharding = asked_sharding(smp);
  if (sharding.degree == 0) sharding.degree = replicas;
  if (replicas % sharding.degree != 0)
    throw ConfigError(cat("/smp_options/sharded_data_parallel_degree: ", sharding.degree, " must divide the ", replicas,
                          " replicas (ranks / (pipeline_parallel_degree x tensor_parallel_degree)); use a divisor, "
                          "or other degrees"));
  return sharding;
}

std::string to_string(const Sharding& sharding, int replicas) {
  if (sharding.degree == 1 && replicas > 1) return cat("none: ", replicas, " replicas hold everything");
  if (sharding.degree == 1) return "none";
  const std::string over = sharding.degree == replicas ? cat(" over ", replicas, " replicas")
                                                       : cat(" over ", sharding.degree, " of ", replicas, " replicas");
  switch (sharding.level) {
    case Level::none:
      break;
    case Level::optimizer:
      return "optimizer state" + over + " (ZeRO-1)";
    case Level::gradients:
      return "optimizer state and gradients" + over + " (ZeRO-2)";
    case Level::weights:
      return "weights, gradients and optimizer state" + over + (sharding.degree == replicas ? " (ZeRO-3)" : " (MiCS)");
  }
  return "none";
}

double largest_norm(const Config& config) {
  return config.training.max_grad_norm;
}

}  // namespace shardline
