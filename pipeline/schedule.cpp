#include "pipeline/schedule.h"

#include "core/error.h"

namespace shardline {

const char* to_string(Op op) {
  static constexpr const char* names[] = {"forward",         "backward_input", "backward_weight", "send_activation",
                                          "recv_activation", "send_gradient",  "recv_gradient",   "reduce_gradients"};
  return names[static_cast<size_t>(op)];
}

std::string to_string(const Instruction& instruction) {
  auto text = cat(to_string(instruction.op), ", microbatch ", instruction.microbatch, ", chunk ", instruction.chunk);
  return instruction.peer < 0 ? text : cat(text, ", peer ", instruction.peer);
}

}  // namespace shardline
