// Generators and files only state what runs in which order; the builder creates the instruction lists.
#pragma once
#include <string>
#include <vector>

#include "pipeline/schedule/schedule.h"

namespace shardline {

enum class CellWork { forward, backward, backward_input, backward_weight };  // backward: both halves together

struct Cell {
  CellWork work;
  int microbatch, chunk;
  bool operator==(const Cell&) const = default;
};
using CellLists = std::vector<std::vector<Cell>>;  // by stage, in execution order

// Adds messages and reductions to the cells.
// - A send comes right after the instruction that produces its tensor: forward, backward_input, or the weight
//   half of a whole backward (the executor runs both halves in one pass, layer by layer, so it cannot send in
//   between).
// - A receive comes right before the instruction that needs its tensor. If other messages come first in the channel,
//   they are received before it: they were sent earlier, so nothing waits longer, and the order of every channel is
//   correct by construction.
// - Reductions are placed by with_reductions, without scattered gradients.
// Cells that a user wrote may be wrong; check_schedule reports that. Microbatches and chunks that do not exist raise a
// ConfigError.
Schedule build_schedule(const std::string& name, const std::vector<int>& stage_of_chunk, int microbatches,
                        const CellLists& cells);

// The stages of `chunks_per_stage` * stages chunks:
std::vector<int> round_robin_chunks(int stages, int chunks_per_stage);  // 0, 1, .., p-1, 0, 1, ..
std::vector<int> v_chunks(int stages);                                  // 0, 1, .., p-1, p-1, .., 1, 0

// The maximum number of microbatches that a stage has at a time between the forward of its first chunk and the end of
// that chunk's backward, including its weights.
int most_active_microbatches(const std::vector<int>& stage_of_chunk, const CellLists& cells);

// Throws ConfigError for stages or microbatches below 1 and for negative active_microbatches.
void check_sizes(const std::string& schedule, int stages, int microbatches, int active_microbatches);

}  // namespace shardline
