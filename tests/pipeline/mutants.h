// Schedules with a mistake or in a different order.
#pragma once
#include <algorithm>
#include <random>

#include "pipeline/schedule/schedule.h"

namespace shardline {

// Makes one random change to one stage's list, or moves an instruction to another stage.
inline Schedule mutant_of(const Schedule& schedule, std::mt19937& random) {
  auto mutant = schedule;
  const auto below = [&](size_t n) { return static_cast<std::ptrdiff_t>(random() % n); };
  auto& list = mutant.instructions[below(mutant.instructions.size())];
  const auto i = list.begin() + below(list.size());
  switch (random() % 8) {
    case 0:  // drop
      list.erase(i);
      break;
    case 1:  // duplicate
      list.insert(list.begin() + below(list.size()), Instruction(*i));
      break;
    case 2:  // swap with any other
      std::iter_swap(i, list.begin() + below(list.size()));
      break;
    case 3:  // swap with the next
      if (i + 1 != list.end()) std::iter_swap(i, i + 1);
      break;
    case 4: {  // move to another place
      const auto instruction = *i;
      list.erase(i);
      list.insert(list.begin() + below(list.size() + 1), instruction);
      break;
    }
    case 5:  // a little earlier
      std::rotate(list.begin() + std::max<std::ptrdiff_t>(0, i - list.begin() - 3), i, i + 1);
      break;
    case 6:  // retarget
      i->peer = static_cast<int>(below(mutant.instructions.size() + 1)) - 1;
      break;
    case 7:  // another microbatch or chunk
      (random() % 2 ? i->microbatch : i->chunk) = static_cast<int>(below(4));
      break;
  }
  return mutant;
}

}  // namespace shardline
