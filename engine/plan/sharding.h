// What a run's replicas share.
#pragma once
#include "engine/config/keys/options.h"
#include "optim/flat/flat_layout.h"

namespace shardline {

// What the keys ask for; degree 0: all replicas.
Sharding asked_sharding(const SmpOptions& smp);
// Of so many replicas. Throws ConfigError where the degree does not divide them.
Sharding sharding_of(const SmpOptions& smp, int replicas);

// "none", "ZeRO-1: optimizer state over 4 replicas", "MiCS: ... over 2 of 4 replicas"
std::string to_string(const Sharding& sharding, int replicas);

// Above which norm gradients are clipped; 0: they are not.
double largest_norm(const Config& config);

}  // namespace shardline
