// The number of borders that a stage holds for messages while it runs its list, computed as Messages runs the schedule:
// one receive is posted ahead for every stage that will still send; a sent border is held until the receiver has posted
// its receive, and then until the next send. The host of an accelerator learns late that a message has left, because it
// queues instructions ahead.
#pragma once
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

// The maximum number of computing instructions that are queued but not finished when the host of an accelerator
// continues with the next instruction.
inline constexpr int kInstructionsAhead = 4;

// Returns, for each stage, the number of borders during each instruction. host_ahead: kInstructionsAhead; 0 on CPUs.
std::vector<std::vector<int>> messages_held(const Schedule& schedule, const InstructionCost& cost, int host_ahead);

}  // namespace shardline
