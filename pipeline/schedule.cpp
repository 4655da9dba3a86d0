#include "pipeline/schedule.h"

#include "core/error.h"

namespace shardline {

const char* to_string(Op op) {
  static constexpr const char* names[] = {"forward",         "backward_input",   "backward_weight",
                                          "send_activation", "recv_activation",  "send_gradient",
                                          "recv_gradient",   "reduce_gradients", "reduce_scatter_gradients"};
  return names[static_cast<size_t>(op)];
}

std::string to_string(const Instruction& instruction) {
  auto text = cat(to_string(instruction.op), ", microbatch ", instruction.microbatch, ", chunk ", instruction.chunk);
  return instruction.peer < 0 ? text : cat(text, ", peer ", instruction.peer);
}

Schedule with_scattered_gradients(Schedule schedule) {
  for (auto& list : schedule.instructions) {
    std::vector<Instruction> longer;
    for (size_t i = 0; i < list.size(); ++i) {
      longer.push_back(list[i]);
      const auto made = [&](size_t place) { return place < list.size() && list[place].op == Op::backward_weight; };
      const bool sends = i + 1 < list.size() && list[i + 1].op == Op::send_gradient;
      if (made(i) && !sends) longer.push_back({Op::reduce_scatter_gradients, list[i].microbatch, list[i].chunk});
      if (list[i].op == Op::send_gradient && i > 0 && made(i - 1))
        longer.push_back({Op::reduce_scatter_gradients, list[i - 1].microbatch, list[i - 1].chunk});
    }
    list = std::move(longer);
  }
  return schedule;
}

}  // namespace shardline
