// A collective in rounds. Each round moves as much data as fits into one slot of shared memory per rank:
//   put      copy the part of this rank's input that others need into its slot
//   combine  add up this rank's part of all inputs, in rank order
//   take     copy what this rank needs from the slots of others
// shared_lane.h synchronizes the ranks.
#pragma once
#include <cstdint>
#include <memory>

#include "core/comm/communicator_base.h"

namespace shardline::mpi {

constexpr int64_t kSlotBytes = 256 << 10;

class Rounds {
 public:
  virtual ~Rounds() = default;
  virtual int64_t count() const = 0;  // at least 1

  // slots[rank]: that rank's slot for this round.
  virtual void put(int64_t round, char* const* slots) = 0;
  virtual void combine(int64_t, char* const*) {}
  virtual void take(int64_t round, char* const* slots) = 0;

  // What must be in the slots before combine and take: the inputs of all ranks, the input of `rank`, or its sum.
  virtual bool combines() const { return false; }
  virtual bool takes_input_of(int) const { return false; }
  virtual bool takes_sum_of(int) const { return false; }
};

// Returns the rounds of rank `rank` of `size`. The request must be a collective or a barrier with tensors on the CPU.
std::unique_ptr<Rounds> make_rounds(const CommRequest& request, int rank, int size);

}  // namespace shardline::mpi
