// Runs the cells of a step with a clock and lets every idle stage take the best cell that it can start. It is used
// where there is no published order, for example if memory allows fewer active microbatches than the published order
// needs.
#pragma once
#include <vector>

#include "pipeline/schedule/schedule_builder.h"

namespace shardline {

struct ListRules {
  enum class Backward { none, whole, split } backward = Backward::whole;
  // Microbatches that a stage may have between the forward of its first chunk and the end of that chunk's backward.
  int active_microbatches = 1;
};

// A backward has priority over a forward, and a forward over a deferred weight gradient; later chunks have priority,
// and in a chunk the microbatches ascend. All halves cost the same. The bound never delays a microbatch that has
// entered a stage, so the oldest microbatch can always continue, and every bound from 1 works.
CellLists list_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches, const ListRules& rules);

}  // namespace shardline
