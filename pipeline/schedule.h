// The schedule is data: for every stage a list of instructions. The executor runs it, the checker proves things about
// it, the plan prints it and the timeline names its events by it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace shardline {

enum class Op {
  forward,
  backward_input,     // gradients of the chunk's input (and all that is not deferred)
  backward_weight,    // the deferred weight-gradient products
  send_activation,
  recv_activation,
  send_gradient,
  recv_gradient,
  reduce_gradients,   // from here on nothing is added to the chunk's gradients: waits for their reduction
};
const char* to_string(Op op);

// A chunk is a contiguous run of layers; chunk c of C stands before chunk c + 1. peer is the stage at the other end of a
// send or receive, -1 elsewhere. microbatch is -1 for reduce_gradients.
struct Instruction {
  Op op;
  int microbatch = -1;
  int chunk = 0;
  int peer = -1;
  bool operator==(const Instruction&) const = default;
};

struct Schedule {
  std::string name;                 // "simple", "interleaved (1F1B)", "forward"
  int stages = 1;
  int microbatches = 1;
  std::vector<int> stage_of_chunk;  // size: number of chunks
  std::vector<std::vector<Instruction>> instructions;  // by stage

  int chunks() const { return static_cast<int>(stage_of_chunk.size()); }
  bool operator==(const Schedule&) const = default;
};

// GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards, in waves of `active_microbatches`.
Schedule simple_schedule(int stages, int microbatches, int active_microbatches);

// 1F1B (PipeDream-flush; Narayanan et al. 2021, arXiv 2104.04473, 2.2.1): stage s runs at most min(stages - s,
// active_microbatches - s) microbatches ahead of its backward. active_microbatches 0: what the schedule needs (stages);
// fewer than that delays forwards.
Schedule one_forward_one_backward(int stages, int microbatches, int active_microbatches);

// Evaluation and generation: every microbatch goes forward through all chunks.
Schedule forward_schedule(int stages, int microbatches);

void to_json(nlohmann::json& json, const Schedule& schedule);
Schedule schedule_from_json(const nlohmann::json& json);

}  // namespace shardline
