// The traffic between the replicas of a run in each step, as readable text.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace shardline {

// How the gradients of the whole model are cut for their reduction, which is started segment by segment: "39 segments,
// 9.0 KiB to 147.4 MiB, median 9.0 MiB, 1.2 GiB in total; each overlaps with the backward pass of earlier layers".
// Empty if nothing is reduced.
std::string reduction_text(const Config& config, const Plan& plan);

// How sharded values are gathered, and why in this way. Empty if nothing is sharded. host_of: the host of each rank, as
// host_grid() takes it; empty if all ranks are on one host.
std::string gathering_text(const Plan& plan, const std::vector<int>& host_of, at::Device device);

}  // namespace shardline
