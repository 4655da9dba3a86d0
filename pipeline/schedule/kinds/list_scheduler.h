// Simulates a step with a clock and lets every idle stage run the best cell that it can start. Used if there is
// no published order, for example because memory allows fewer active microbatches than the published order
// needs.
#pragma once
#include <vector>

#include "pipeline/schedule/schedule_builder.h"

namespace shardline {

struct ListRules {
  enum class Backward { none, whole, split } backward = Backward::whole;
  // Maximum number of microbatches that a stage may have between its first chunk's forward and the end of its backward.
  int active_microbatches = 1;
};

// A backward has priority over a forward, and a forward over a deferred weight gradient; later chunks have priority,
// and within a chunk the microbatches ascend. All halves cost the same. The limit never delays a microbatch that has
// entered a stage, so the oldest microbatch can always continue, and every limit from 1 on works.
CellLists list_schedule(const std::vector<int>& stage_of_chunk, int stages, int microbatches, const ListRules& rules);

}  // namespace shardline
