// How the replicas of a run shard weights, gradients and optimizer states.
#pragma once
#include "engine/config/keys/options.h"
#include "optim/flat/flat_layout.h"

namespace shardline {

// The sharding that the keys ask for; degree 0: over all replicas.
Sharding asked_sharding(const SmpOptions& smp);
// The same for a number of replicas. Throws ConfigError if the degree does not divide it.
Sharding sharding_of(const SmpOptions& smp, int replicas);

// "none", "optimizer state over 4 replicas (ZeRO-1)", "weights, gradients and optimizer state over 2 of 4 replicas
// (MiCS)"
std::string to_string(const Sharding& sharding, int replicas);

// The norm above which gradients are clipped; 0: they are not clipped.
double largest_norm(const Config& config);

}  // namespace shardline
