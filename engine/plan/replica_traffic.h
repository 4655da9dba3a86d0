// What the replicas of a run send each other in each step, as readable text.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace shardline {

// How the gradients of the whole model are cut for their reduction, which begins segment by segment: "39 all-reduces
// over 2 replicas, 9.0 KiB to 147.4 MiB, median 9.0 MiB; each when its layer's last gradient is there". Empty where
// nothing is reduced.
std::string reduction_text(const Config& config, const ModelSpec& spec, const Plan& plan);

// How sharded values are gathered, and why so. Empty where nothing is sharded. host_of: by rank, as host_grid() takes
// it; empty: all on one.
std::string gathering_text(const ModelSpec& spec, const Plan& plan, const std::vector<int>& host_of, at::Device device);

}  // namespace shardline
