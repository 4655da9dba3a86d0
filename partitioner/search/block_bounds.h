// Lower bounds of the memory that stages need for the blocks of a model. They need neither a schedule nor a cut and
// never exceed the exact count, so a search can use them to skip layouts.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"

namespace shardline {

// Whether every backward of these schedules is whole (see schedule.h); false if only some are, or if unknown.
bool has_whole_backwards(const ScheduleSource& source);

// A block's bytes on the first rank that holds it.
struct BlockNeed {
  double states = 0, kept = 0;  // kept: per microbatch
  // Needed in addition while the block runs backward: activations, gathered values, gradients before their reduction.
  // with_neighbour: if another block is next to it in its chunk.
  double passing = 0, with_neighbour = 0;
};
// The needs of the blocks; adjacent equal blocks appear once. Of the layout's schedule, only has_whole_backwards
// matters.
std::vector<BlockNeed> block_needs(const Workload& workload, const Layout& layout);

// Bounds on the memory of a layout's stages, derived from the needs of their blocks.
class StageNeeds {
 public:
  StageNeeds(const Layout& layout, const std::vector<BlockNeed>& needs);

  // The number of blocks that all stages together can hold, with `room` bytes each.
  double places(double room) const;
  // The bytes of the largest stage if the blocks are divided in the best way.
  double of_largest_stage(int blocks) const;

 private:
  double bytes(size_t stage, int blocks) const;

  std::vector<double> least_;  // by stage: for each block
  double passing_ = 0, with_neighbour_ = 0;
  int chunks_;  // per stage: if it has more blocks, some chunk has two
};

}  // namespace shardline
