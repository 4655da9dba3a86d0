// The collectives of one group in memory that its ranks share. Each rank has a few slots there, which its rounds
// (shared_rounds.h) use in turn, and counts in shared memory how many rounds it has put, combined and taken; the counts
// of the others show which step may come next. No step blocks: the engine's thread polls, so any number of groups may
// be active in any order.
#pragma once
#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "core/comm/communicator_base.h"
#include "core/comm/mpi/completion.h"
#include "core/comm/mpi/engine.h"
#include "core/comm/mpi/shared_rounds.h"
#include "core/comm/mpi/shared_segment.h"

namespace shardline::mpi {

class SharedLane : public Worker {
 public:
  static constexpr int kLargestGroup = 1024;
  static size_t bytes_for(int size);

  // segment: bytes_for(size) bytes, in which this rank has signed in at place `rank`.
  SharedLane(std::unique_ptr<SharedSegment> segment, int rank, std::vector<int> members);

  // Called on the engine's thread. Collectives end in the order in which they start.
  void start(CommRequest request, std::shared_ptr<Completion> completion);

  bool advance() override;
  bool idle() const override { return collectives_.empty(); }

 private:
  struct RankState;  // in shared memory
  struct Collective {
    CommRequest request;
    std::shared_ptr<Completion> completion;
    std::string signature;
    std::unique_ptr<Rounds> rounds;
    uint64_t begin = 0, end = 0;  // rounds of the group
    bool agreed = false;          // all ranks run the same operation
  };

  bool put();
  bool combine();
  bool take();
  Collective& collective_of(uint64_t round);
  std::vector<char*> slots_of(uint64_t round) const;
  RankState& state(int rank) const;
  int size() const { return members_.size(); }

  bool agree(Collective& collective) const;
  void check_peers();
  void fail(const std::string& reason);

  std::unique_ptr<SharedSegment> segment_;
  int rank_;
  std::vector<int> members_;
  std::deque<Collective> collectives_;
  uint64_t end_ = 0;                             // number of rounds of all collectives started so far
  uint64_t put_ = 0, combined_ = 0, taken_ = 0;  // rounds
  std::string failure_;
  std::chrono::steady_clock::time_point last_look_;  // the last time that something advanced or peers were checked
};

}  // namespace shardline::mpi
