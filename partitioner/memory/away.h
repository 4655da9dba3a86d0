// Which activations of a stage are temporarily on the host.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// By instruction of a stage's list: for a forward, whether its kept activations are offloaded until their
// backward_input; for a backward_input, whether those it uses were. All false if the layout offloads nothing.
std::vector<bool> away_between(const Layout& layout, const std::vector<Instruction>& list);

}  // namespace shardline
