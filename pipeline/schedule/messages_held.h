// Borders that a stage holds for messages while it runs its list, computed from the schedule as Messages runs it: one
// receive is posted ahead for every stage that still sends; a sent border is held until the receiver has posted its
// receive, and then until the next send.
#pragma once
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

// Returns, for each stage, the number of borders during each instruction.
std::vector<std::vector<int>> messages_held(const Schedule& schedule, const InstructionCost& cost);

}  // namespace shardline
