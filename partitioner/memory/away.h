// Which activations of a stage are on the host for a while.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

// By instruction of a stage's list: for a forward, whether the activations it keeps are offloaded until their
// backward_input; for a backward_input, whether the activations it uses were. All false if the layout offloads nothing.
std::vector<bool> away_between(const Layout& layout, const std::vector<Instruction>& list);

}  // namespace shardline
