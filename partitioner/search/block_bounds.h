// Lower bounds of the memory that stages need for the blocks of a model. They need neither a schedule nor a cut and
// never exceed the exact count, so a search can skip layouts by them.
#pragma once
#include <vector>

#include "partitioner/layout/layout.h"

namespace shardline {

// Whether every backward of these schedules is whole (see schedule.h); false if only some are, or if it is not known.
bool has_whole_backwards(const ScheduleSource& source);

// A block's bytes on the first rank that holds it.
struct BlockNeed {
  double states = 0, kept = 0;  // kept: of a microbatch
  // While the block runs backward, besides these: activations, values that are gathered, gradients before their
  // reduction. with_neighbour: if it has another block next to it in its chunk.
  double passing = 0, with_neighbour = 0;
};
// Returns the needs of the blocks; equal neighbours appear once. Only has_whole_backwards of the layout's schedule
// matters.
std::vector<BlockNeed> block_needs(const Workload& workload, const Layout& layout);

// Bounds on the memory of a layout's stages, from the needs of their blocks.
class StageNeeds {
 public:
  StageNeeds(const Layout& layout, const std::vector<BlockNeed>& needs);

  // The number of blocks that all stages can hold in `room` bytes each.
  double places(double room) const;
  // The bytes of the largest stage if stages share the blocks in the best way.
  double of_largest_stage(int blocks) const;

 private:
  double bytes(size_t stage, int blocks) const;

  std::vector<double> least_;  // by stage: for each block
  double passing_ = 0, with_neighbour_ = 0;
  int chunks_;  // of a stage: with more blocks, some chunk has two
};

}  // namespace shardline
