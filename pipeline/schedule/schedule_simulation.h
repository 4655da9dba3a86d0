// Runs a schedule's lists with a clock, as the executor would: determines when every instruction starts and ends, and
// where stages get stuck if they wait for each other. Takes time linear in the number of instructions.
//
// A channel leads from one stage to another and preserves the order of messages. A send holds a buffer of its channel
// until the receiver takes the message; it waits if all buffers are held and the receiver has not reached the receive
// of the oldest. Messages overlap with computation: they cost only the time that the receiver waits for them. By
// default they arrive immediately.
#pragma once
#include <functional>
#include <limits>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

inline constexpr int kUnboundedSends = std::numeric_limits<int>::max();

struct Interval {
  double start = 0, end = 0;  // start: when its waiting ends
};

struct Simulation {
  std::vector<std::vector<Interval>> intervals;  // by stage: of the instructions that have finished

  bool finished(const Schedule& schedule) const;
  double makespan() const;
};

// Duration of a computing instruction, in any unit; not called for sends and receives.
using InstructionCost = std::function<double(int stage, const Instruction&)>;

// Time from a send to the earliest end of its receive.
using MessageTime = std::function<double(int from, int to)>;

// Peers must be other stages of the schedule. send_buffers: per channel; 0: rendezvous, i.e. a send ends when its
// receive begins.
Simulation simulate(const Schedule& schedule, int send_buffers, const InstructionCost& cost,
                    const MessageTime& message = nullptr);

bool is_send(Op op);
bool is_receive(Op op);

// Whether the next instruction computes the weight gradients of the BackwardInput at `place`. They are then computed
// immediately, each while its tensors are in cache, and nothing is deferred.
bool weights_follow(const std::vector<Instruction>& list, size_t place);

}  // namespace shardline
