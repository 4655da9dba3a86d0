// The operations of the mpi communicator as messages between pairs of ranks.
#pragma once
#include <mpi.h>

#include <string>

#include "core/communicator_base.h"
#include "core/mpi/completion.h"
#include "core/mpi/engine.h"

namespace shardline::mpi {

// One group's share of an MPI communicator: operations are told apart by tags made of group and sequence number, so any
// number of them may be under way and end in any order.
struct Lane {
  MPI_Comm comm = MPI_COMM_NULL;
  int group = 0;             // number; differs between groups that share two ranks
  int sequence_bits = 0;     // that the tags leave
  std::vector<int> members;  // ranks in comm, by rank in the group
  int rank = 0;              // in the group

  static constexpr int kGroupBits = 12;
  enum Phase { kMessage = 0, kFirst = 1, kSecond = 2 };  // of a pair; of a collective
  int tag(Phase phase, uint64_t sequence) const;
  int size() const { return static_cast<int>(members.size()); }
};

// An operation that somebody can wait for.
class WaitableOperation : public Operation, public Completion {
 public:
  explicit WaitableOperation(const CommRequest& request) : Completion(request.ticket) {}
  void finished(const std::string& error) override { finish(error); }
};

// The request's tensors must be on the CPU.
std::shared_ptr<WaitableOperation> make_operation(const Lane& lane, CommRequest request);

}  // namespace shardline::mpi
