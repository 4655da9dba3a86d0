#include "models/program/layers/border_slots.h"

#include <algorithm>

namespace shardline {

std::vector<BorderSlot> border_slots(const Program& program, const std::vector<int>& border) {
  std::vector<BorderSlot> slots;
  for (const int value : border) {
    const int64_t features = program.graph().values[value].sizes[2].number;
    int BorderSlot::*place = program.is_of_target(value) ? &BorderSlot::target : &BorderSlot::source;
    const auto free = std::ranges::find_if(
        slots, [&](const BorderSlot& slot) { return slot.features == features && slot.*place < 0; });
    BorderSlot& slot = free == slots.end() ? slots.emplace_back(BorderSlot{.features = features}) : *free;
    slot.*place = value;
  }
  return slots;
}

}  // namespace shardline
