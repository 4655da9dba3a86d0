// Runs the cells of a step with a clock and lets every stage that is idle take the best cell that it could start: for
// schedules without a published order, as when memory allows fewer active microbatches than the published one needs.
#pragma once
#include <vector>

#include "pipeline/schedule/schedule_builder.h"

namespace shardline {

struct ListRules {
  enum class Backward { none, whole, split } backward = Backward::whole;
  // Microbatches that a stage may have between the forward of its first chunk and the end of that chunk's backward.
  int active_microbatches = 1;
};

// A backward goes before a forward, a forward before a deferred weight gradient; later chunks go first, and in a chunk
// the microbatches ascend. All halves cost the same. A microbatch that has entered a stage is never delayed by the
// bound, so the oldest microbatch can always continue, and every bound from 1 works.
CellLists list_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches, const ListRules& rules);

}  // namespace shardline
