// Which activations of a stage have the time to wait on the host.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// By instruction of a stage's list: whether what a forward makes is away until its backward_input, and, there, whether
// what it uses was. Nothing is where the layout offloads nothing.
std::vector<bool> away_between(const Layout& layout, const std::vector<Instruction>& list);

}  // namespace shardline
