#include "pipeline/schedule.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace shardline {
namespace {

// Writes one stage's list; knows where a chunk's neighbours are, so that generators only say what runs when.
class StageList {
 public:
  StageList(Schedule& schedule, int stage)
      : stage_of_chunk_(schedule.stage_of_chunk), list_(schedule.instructions[static_cast<size_t>(stage)]) {}

  void forward(int microbatch, int chunk) {
    message(Op::recv_activation, microbatch, chunk, chunk - 1);
    list_.push_back({Op::forward, microbatch, chunk});
    message(Op::send_activation, microbatch, chunk, chunk + 1);
  }

  void backward(int microbatch, int chunk) {
    message(Op::recv_gradient, microbatch, chunk, chunk + 1);
    list_.push_back({Op::backward_input, microbatch, chunk});
    list_.push_back({Op::backward_weight, microbatch, chunk});
    message(Op::send_gradient, microbatch, chunk, chunk - 1);
  }

  void reduce_gradients(int chunk) { list_.push_back({Op::reduce_gradients, -1, chunk}); }

 private:
  void message(Op op, int microbatch, int chunk, int neighbour) {
    if (neighbour < 0 || neighbour >= static_cast<int>(stage_of_chunk_.size())) return;
    const int peer = stage_of_chunk_[static_cast<size_t>(neighbour)];
    if (peer != stage_of_chunk_[static_cast<size_t>(chunk)]) list_.push_back({op, microbatch, chunk, peer});
  }

  const std::vector<int>& stage_of_chunk_;
  std::vector<Instruction>& list_;
};

// One chunk per stage, in order.
Schedule empty_schedule(const char* name, int stages, int microbatches) {
  if (stages < 1) throw ConfigError(cat("smp_options.pipeline_parallel_degree must be at least 1; got ", stages, "."));
  if (microbatches < 1) throw ConfigError(cat("smp_options.microbatches must be at least 1; got ", microbatches, "."));
  Schedule schedule{name, stages, microbatches, std::vector<int>(static_cast<size_t>(stages)), {}};
  std::iota(schedule.stage_of_chunk.begin(), schedule.stage_of_chunk.end(), 0);
  schedule.instructions.resize(static_cast<size_t>(stages));
  return schedule;
}

int active_or(int needed, int active_microbatches, const std::string& schedule) {
  if (active_microbatches < 0)
    throw ConfigError(cat("smp_options.active_microbatches is ", active_microbatches, ", but the schedule \"", schedule,
                          "\" keeps at least 1 microbatch active. Set it to 1 or more, or leave it out for ", needed,
                          ", which the schedule can use."));
  return active_microbatches == 0 ? needed : std::min(active_microbatches, needed);
}

}  // namespace

const char* to_string(Op op) {
  static constexpr const char* names[] = {"forward",         "backward_input", "backward_weight", "send_activation",
                                          "recv_activation", "send_gradient",  "recv_gradient",   "reduce_gradients"};
  return names[static_cast<size_t>(op)];
}

Schedule simple_schedule(int stages, int microbatches, int active_microbatches) {
  auto schedule = empty_schedule("simple", stages, microbatches);
  const int wave = active_or(microbatches, active_microbatches, schedule.name);
  for (int stage = 0; stage < stages; ++stage) {
    StageList list(schedule, stage);
    for (int begin = 0; begin < microbatches; begin += wave) {
      const int end = std::min(begin + wave, microbatches);
      for (int microbatch = begin; microbatch < end; ++microbatch) list.forward(microbatch, stage);
      for (int microbatch = begin; microbatch < end; ++microbatch) list.backward(microbatch, stage);
    }
    list.reduce_gradients(stage);
  }
  return schedule;
}

Schedule one_forward_one_backward(int stages, int microbatches, int active_microbatches) {
  auto schedule = empty_schedule("interleaved (1F1B)", stages, microbatches);
  const int64_t active = active_or(stages, active_microbatches, schedule.name);
  for (int stage = 0; stage < stages; ++stage) {
    const auto ahead = static_cast<int>((active * (stages - stage) + stages - 1) / stages);
    StageList list(schedule, stage);
    int forwards = 0;
    for (int backward = 0; backward < microbatches; ++backward) {
      while (forwards < std::min(backward + ahead, microbatches)) list.forward(forwards++, stage);
      list.backward(backward, stage);
    }
    list.reduce_gradients(stage);
  }
  return schedule;
}

Schedule forward_schedule(int stages, int microbatches) {
  auto schedule = empty_schedule("forward", stages, microbatches);
  for (int stage = 0; stage < stages; ++stage) {
    StageList list(schedule, stage);
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) list.forward(microbatch, stage);
  }
  return schedule;
}

std::string to_string(const Instruction& instruction) {
  auto text = cat(to_string(instruction.op), ", microbatch ", instruction.microbatch, ", chunk ", instruction.chunk);
  return instruction.peer < 0 ? text : cat(text, ", peer ", instruction.peer);
}

}  // namespace shardline
