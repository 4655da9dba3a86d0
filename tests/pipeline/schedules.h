// Every named schedule, for tests that apply to all of them.
#pragma once
#include "pipeline/schedule/kinds/schedule_choice.h"

namespace shardline {

inline std::vector<Schedule> all_schedules(int stages, int microbatches, int active = 0) {
  std::vector<Schedule> all;
  for (const auto& name : schedule_names())
    for (int v = 1; v <= (name == "interleaved_1f1b" ? 3 : 1); ++v)
      if (name != "interleaved_1f1b" || v > 1) all.push_back(make_schedule({name, stages, microbatches, v, active}));
  return all;
}

}  // namespace shardline
