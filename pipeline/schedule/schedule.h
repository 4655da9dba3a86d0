// A schedule is data: a list of instructions for every stage. The executor runs it, the checker proves its properties,
// the plan prints it, and the timeline takes its event names from it.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace shardline {

enum class Op {
  forward,
  backward_input,   // gradients of the chunk's input (and of everything that is not deferred)
  backward_weight,  // the deferred weight-gradient products
  send_activation,
  recv_activation,
  send_gradient,
  recv_gradient,
  end_gradients,     // nothing more is added to the chunk's gradients; their reduction has begun layer by layer
  settle_gradients,  // waits for the reductions of all microbatches' gradients: only this rank's shards remain
};
const char* to_string(Op op);

// Whether the instruction uses the device: forward and the two halves of backward do. The others move tensors or
// wait.
constexpr bool computes(Op op) {
  return op <= Op::backward_weight;
}

// Whether the instruction depends on how gradients are reduced, not on the order of the work.
constexpr bool is_reduction(Op op) {
  return op == Op::end_gradients || op == Op::settle_gradients;
}

// Whether evaluation uses this instruction; all others belong to the backward pass.
constexpr bool is_of_forward(Op op) {
  return op == Op::forward || op == Op::send_activation || op == Op::recv_activation;
}

// A chunk is a contiguous run of layers; chunk c of C comes before chunk c + 1. peer is the stage at the other end of a
// send or receive, otherwise -1. microbatch is -1 for end_gradients.
struct Instruction {
  Op op;
  int microbatch = -1;
  int chunk = 0;
  int peer = -1;
  bool operator==(const Instruction&) const = default;
};

// Whether the step needs the instruction if only the chunks from `first_backward_chunk` on have a backward pass.
constexpr bool is_needed(const Instruction& instruction, int first_backward_chunk) {
  const int first = first_backward_chunk + (instruction.op == Op::send_gradient ? 1 : 0);
  return is_of_forward(instruction.op) || instruction.chunk >= first;
}

// "forward, microbatch 3, chunk 0"
std::string to_string(const Instruction& instruction);

struct Schedule {
  std::string name;  // "simple", "interleaved (1F1B)", "ZB-V", "forward", or a file name
  int stages = 1;
  int microbatches = 1;
  std::vector<int> stage_of_chunk;                     // size: number of chunks
  std::vector<std::vector<Instruction>> instructions;  // by stage
  int first_backward_chunk = 0;                        // chunks before it run only forward

  int chunks() const { return stage_of_chunk.size(); }
  bool operator==(const Schedule&) const = default;
};

// Whether the result of instruction `forward` of a list, used by instruction `backward`, can be offloaded in between if
// it must be back `horizon` instructions before its use.
constexpr bool can_be_away(size_t forward, size_t backward, int horizon) {
  return backward > forward + horizon;
}

// In every list, a receive comes before the forward or backward_input that needs it; an activation is sent right after
// its forward; a whole backward is backward_input, backward_weight, send_gradient, and a split one backward_input,
// send_gradient, and later backward_weight (pipeline/schedule/schedule_builder.h explains why); the last chunk's head
// computes the loss, so it receives no gradient; neighbouring chunks of one stage exchange no messages; there is one
// end_gradients per chunk. If gradients are sharded, settle_gradients follows every backward_weight (and the send that
// follows it). Sends do not wait for their receiver: 1F1B needs one tensor in flight per channel
// (pipeline/schedule/checker.h computes this number for any schedule).
//
// The functions here make schedules with one chunk per stage and whole backwards;
// pipeline/schedule/kinds/schedule_generators.h makes others, and pipeline/schedule/kinds/schedule_choice.h finds one
// by name. active_microbatches limits the microbatches that a stage keeps between forward and backward. 0: as many as
// the schedule needs. The minimum is 1 (microbatches pass through all stages and back one at a time). All throw
// ConfigError.

// GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards, in waves of `active_microbatches`.
Schedule simple_schedule(int stages, int microbatches, int active_microbatches);

// 1F1B (PipeDream-flush; Narayanan et al. 2021, arXiv 2104.04473, 2.2.1): stage s runs at most `stages - s`
// microbatches ahead of its backward. With only a < stages active microbatches, this becomes ceil(a * (stages - s) /
// stages): the time between forward and backward decreases towards the last stage, and a stage that runs further ahead
// delays its backwards.
Schedule one_forward_one_backward(int stages, int microbatches, int active_microbatches);

// Replaces the schedule's reductions by those that its backwards need: an end_gradients for each chunk at the end of
// each list, in the order in which the chunks get their last gradients, and, if gradients are scattered (sharded), the
// settle_gradients.
Schedule with_reductions(Schedule schedule, bool scattered);

// Removes the backward passes of the chunks before `chunk`, whose gradients are not needed, and their messages.
Schedule without_backward_before(Schedule schedule, int chunk);

// For evaluation and generation: every microbatch runs forward through all chunks.
Schedule forward_schedule(int stages, int microbatches);

// {"name", "stages", "microbatches", "stage_of_chunk", "instructions": [by stage [{"op", "microbatch", "chunk",
// "peer"}]]}; microbatch and peer are omitted if they are -1, and first_backward_chunk is added unless it is 0. Reading
// is strict (ConfigError names the place), but only check_schedule checks whether the lists make sense.
void to_json(nlohmann::json& json, const Schedule& schedule);
Schedule schedule_from_json(const nlohmann::json& json, const std::string& file);

}  // namespace shardline
