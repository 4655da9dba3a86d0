// Proves, before anything runs, that a schedule's lists do what a training or evaluation step needs and cannot
// deadlock. The lists may come from a generator or from a user's file.
//
// It proves that
//   - every instruction names a chunk of its stage, a microbatch of the step and the stage of the neighbouring chunk;
//   - every (microbatch, chunk) is received, run forward and sent, and in training also received, run backward (input,
//     then weight) and sent, each exactly once and after the instructions that produce its inputs; chunks before
//     Schedule::first_backward_chunk run only forward, and that chunk sends no gradient;
//   - both backward halves of a chunk, and the last chunk's forwards, which compute the loss and its gradients, run in
//     ascending microbatch order, since all of them add to gradients and sums must not depend on the schedule;
//   - end_gradients occurs once per chunk, after its last backward_weight, and settle_gradients, if the list has any,
//     before it after every backward_weight (replicas run the same list, so they agree on the order of collectives);
//   - the receives of every channel (from one stage to another) expect exactly what is sent through it, in order;
//   - with the allowed buffers, no stages wait for each other in a cycle.
// A schedule with only forwards and messages of activations is an evaluation schedule. The check runs in linear time.
#pragma once
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/schedule_simulation.h"

namespace shardline {

// The message names schedule, stage, index in the stage's list, and instruction. stage or index is -1 if the rule does
// not concern one.
struct ScheduleError : ConfigError {
  ScheduleError(const std::string& message, int at_stage, int at_index)
      : ConfigError(message), stage(at_stage), index(at_index) {}
  int stage, index;
};

struct CheckReport {
  bool training = false;
  int send_buffers = 0;  // the minimum per channel, within the limit, with which the schedule finishes
  // By stage, the maximum number of (microbatch, chunk) pairs kept at a time ...
  std::vector<int> peak_activations;   // ... from forward to the end of backward_input; 0 in evaluation
  std::vector<int> peak_weight_pairs;  // ... from backward_input to the end of backward_weight
};

// send_buffers: how many messages a channel holds before the sender has to wait for the receiver. Unbounded: sends are
// started, and waited for only at the end of the step, as in the executor. 0 is a rendezvous: large MPI messages behave
// like this if the sender waits for each send, and NCCL if all messages of a rank are queued on one stream. Throws
// ScheduleError.
CheckReport check_schedule(const Schedule& schedule, int send_buffers = kUnboundedSends);

}  // namespace shardline
