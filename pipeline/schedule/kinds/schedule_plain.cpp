// Schedules with one chunk per stage and whole backward passes, and forward-only schedules.
#include <algorithm>

#include "pipeline/schedule/kinds/list_scheduler.h"
#include "pipeline/schedule/kinds/schedule_generators.h"

namespace shardline {

Schedule simple_schedule(int stages, int microbatches, int active_microbatches) {
  const char* name = "simple";
  check_sizes(name, stages, microbatches, active_microbatches);
  const int wave = active_microbatches == 0 ? microbatches : std::min(active_microbatches, microbatches);
  CellLists cells(stages);
  for (int stage = 0; stage < stages; ++stage)
    for (int begin = 0; begin < microbatches; begin += wave) {
      auto& list = cells[stage];
      const int end = std::min(begin + wave, microbatches);
      for (int microbatch = begin; microbatch < end; ++microbatch)
        list.push_back({CellWork::forward, microbatch, stage});
      for (int microbatch = begin; microbatch < end; ++microbatch)
        list.push_back({CellWork::backward, microbatch, stage});
    }
  return build_schedule(name, round_robin_chunks(stages, 1), microbatches, cells);
}

Schedule one_forward_one_backward(int stages, int microbatches, int active_microbatches) {
  const char* name = "interleaved (1F1B)";
  check_sizes(name, stages, microbatches, active_microbatches);
  const int64_t active = active_microbatches == 0 ? stages : std::min(active_microbatches, stages);
  CellLists cells(stages);
  for (int stage = 0; stage < stages; ++stage) {
    auto& list = cells[stage];
    const int ahead = (active * (stages - stage) + stages - 1) / stages;
    int forwards = 0;
    for (int backward = 0; backward < microbatches; ++backward) {
      while (forwards < std::min(backward + ahead, microbatches))
        list.push_back({CellWork::forward, forwards++, stage});
      list.push_back({CellWork::backward, backward, stage});
    }
  }
  return build_schedule(name, round_robin_chunks(stages, 1), microbatches, cells);
}

Schedule forward_schedule(int stages, int microbatches) {
  check_sizes("forward", stages, microbatches, 0);
  return forward_schedule(round_robin_chunks(stages, 1), stages, microbatches);
}

Schedule forward_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches) {
  return build_schedule("forward", stage_of_chunk, microbatches,
                        list_schedule(stage_of_chunk, stages, microbatches, {.backward = ListRules::Backward::none}));
}

}  // namespace shardline
