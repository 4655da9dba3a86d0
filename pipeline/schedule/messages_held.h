// Borders that a stage holds for messages while it runs its list, computed from the schedule as Messages runs it: a
// receive is posted ahead from every stage that still sends, and what is sent is held until the receiver has posted its
// receive, and then to the next send.
#pragma once
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

// By stage: how many while each instruction runs.
std::vector<std::vector<int>> messages_held(const Schedule& schedule, const InstructionCost& cost);

}  // namespace shardline
