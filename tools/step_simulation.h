// A step's pipeline as it ran, and as the simulator predicts it from the instruction times of another step.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "pipeline/schedule/instruction_records.h"
#include "pipeline/schedule/schedule.h"

namespace shardline {

struct MeasuredPipeline {
  // Mean seconds over the microbatches of instructions that compute, without waiting. A chunk is on one stage; of
  // several ranks of that stage the slowest one counts.
  std::map<std::pair<Op, int>, double> seconds_of;  // by op and chunk
  std::vector<double> busy;                         // seconds by rank
  double span = 0;                                  // from the first instruction of any rank to the last
};

// Collective over the world, whose ranks share a clock (one host).
MeasuredPipeline gather_pipeline(Communicator& world, const std::vector<InstructionRecord>& records);

double simulated_seconds(const Schedule& schedule, const MeasuredPipeline& measured);

}  // namespace shardline
