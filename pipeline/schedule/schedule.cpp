#include "pipeline/schedule/schedule.h"

#include "core/enum_array.h"
#include "core/error.h"

namespace shardline {

const char* to_string(Op op) {
  static constexpr EnumArray<Op, const char*, 9> names = {"forward",         "backward_input",  "backward_weight",
                                                          "send_activation", "recv_activation", "send_gradient",
                                                          "recv_gradient",   "end_gradients",   "settle_gradients"};
  return names[op];
}

std::string to_string(const Instruction& instruction) {
  auto text = cat(to_string(instruction.op), ", microbatch ", instruction.microbatch, ", chunk ", instruction.chunk);
  return instruction.peer < 0 ? text : cat(text, ", peer ", instruction.peer);
}

Schedule with_reductions(Schedule schedule, bool scattered) {
  for (auto& list : schedule.instructions) {
    std::erase_if(list, [](const Instruction& instruction) { return is_reduction(instruction.op); });
    std::vector<Instruction> longer;
    std::vector<int> ended;  // chunks in the order in which they get their last gradients
    for (size_t i = 0; i < list.size(); ++i) {
      longer.push_back(list[i]);
      const auto is = [&](size_t place, Op op) { return place < list.size() && list[place].op == op; };
      if (is(i, Op::backward_weight)) {
        std::erase(ended, list[i].chunk);
        ended.push_back(list[i].chunk);
        if (scattered && !is(i + 1, Op::send_gradient))
          longer.push_back({Op::settle_gradients, list[i].microbatch, list[i].chunk});
      } else if (scattered && is(i, Op::send_gradient) && i > 0 && is(i - 1, Op::backward_weight)) {
        longer.push_back({Op::settle_gradients, list[i - 1].microbatch, list[i - 1].chunk});
      }
    }
    for (const int chunk : ended) longer.push_back({Op::end_gradients, -1, chunk});
    list = std::move(longer);
  }
  return schedule;
}

Schedule without_backward_before(Schedule schedule, int chunk) {
  schedule.first_backward_chunk = chunk;
  for (auto& list : schedule.instructions)
    std::erase_if(list, [&](const Instruction& instruction) { return !is_needed(instruction, chunk); });
  return schedule;
}

}  // namespace shardline
