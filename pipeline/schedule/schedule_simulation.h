// Runs a schedule's lists as the executor would, with a clock: finds when every instruction starts and ends, and where
// the stages stop if they wait for each other. The time is linear in the number of instructions.
//
// A channel leads from one stage to another and keeps the order of its messages. A send holds a buffer of its channel
// until the receiver takes the message; it waits while all buffers are held and the receiver has not reached the
// receive of the oldest. Messages overlap with computation: they cost only the time that the receiver waits for them;
// by default they arrive immediately.
#pragma once
#include <functional>
#include <limits>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

inline constexpr int kUnboundedSends = std::numeric_limits<int>::max();

struct Interval {
  double start = 0, end = 0;  // start: the end of its waiting
};

struct Simulation {
  std::vector<std::vector<Interval>> intervals;  // by stage: of the instructions that have ended

  bool finished(const Schedule& schedule) const;
  double makespan() const;
};

// Time of an instruction that computes, in any unit; not called for sends and receives.
using InstructionCost = std::function<double(int stage, const Instruction&)>;

// Time from a send to the earliest end of its receive.
using MessageTime = std::function<double(int from, int to)>;

// Peers must be other stages of the schedule. send_buffers: per channel; 0: rendezvous, a send ends when its receive
// begins.
Simulation simulate(const Schedule& schedule, int send_buffers, const InstructionCost& cost,
                    const MessageTime& message = nullptr);

bool is_send(Op op);
bool is_receive(Op op);

// Whether the weight gradients of the BackwardInput at `place` are the next instruction. They are then computed
// immediately, each while its tensors are in cache, and nothing is deferred.
bool weights_follow(const std::vector<Instruction>& list, size_t place);

}  // namespace shardline
