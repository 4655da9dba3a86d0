#include <algorithm>

#include "core/error.h"
#include "pipeline/schedule/kinds/list_scheduler.h"
#include "pipeline/schedule/kinds/schedule_generators.h"

namespace shardline {
namespace {

// Microbatch and chunk (numbered from 0 within the stage) in the order in which every stage processes them.
std::vector<std::pair<int, int>> forward_order(int microbatches, int groups, int chunks) {
  std::vector<std::pair<int, int>> order;
  for (int group = 0, begin = 0; group < groups; ++group) {
    const int end = begin + microbatches / groups + (group < microbatches % groups ? 1 : 0);
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int microbatch = begin; microbatch < end; ++microbatch) order.emplace_back(microbatch, chunk);
    begin = end;
  }
  return order;
}

CellLists published_order(int stages, int microbatches, int chunks) {
  // No group is smaller than the number of stages: otherwise its first microbatch would not be back for the next chunk.
  const int groups = std::max(1, microbatches / stages);
  const int largest = (microbatches + groups - 1) / groups;
  const auto order = forward_order(microbatches, groups, chunks);
  CellLists cells(stages);
  for (int stage = 0; stage < stages; ++stage) {
    auto& list = cells[stage];
    const size_t ahead = 2 * (stages - stage - 1) + (chunks - 1) * largest + 1;
    size_t forwards = 0;
    for (size_t backward = 0; backward < order.size(); ++backward) {
      for (; forwards < std::min(backward + ahead, order.size()); ++forwards)
        list.push_back({CellWork::forward, order[forwards].first, order[forwards].second * stages + stage});
      // Backward processes a group's chunks from last to first.
      list.push_back(
          {CellWork::backward, order[backward].first, (chunks - 1 - order[backward].second) * stages + stage});
    }
  }
  return cells;
}

}  // namespace

Schedule interleaved_1f1b(int stages, int microbatches, int chunks_per_stage, int active_microbatches) {
  const auto name = cat("interleaved 1F1B, ", chunks_per_stage, " chunks");
  check_sizes(name, stages, microbatches, active_microbatches);
  if (chunks_per_stage < 1)
    throw ConfigError(cat("smp_options.virtual_pipeline_degree must be at least 1; got ", chunks_per_stage, "."));
  if (chunks_per_stage == 1) return one_forward_one_backward(stages, microbatches, active_microbatches);
  const auto stage_of_chunk = round_robin_chunks(stages, chunks_per_stage);
  auto cells = published_order(stages, microbatches, chunks_per_stage);
  if (active_microbatches > 0 && active_microbatches < most_active_microbatches(stage_of_chunk, cells))
    cells = list_schedule(stage_of_chunk, stages, microbatches, {.active_microbatches = active_microbatches});
  return build_schedule(name, stage_of_chunk, microbatches, cells);
}

}  // namespace shardline
