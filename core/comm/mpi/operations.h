// The operations of the mpi communicator, implemented as messages between pairs of ranks.
#pragma once
#include <mpi.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator_base.h"
#include "core/comm/mpi/completion.h"
#include "core/comm/mpi/engine.h"

namespace shardline::mpi {

// One group's share of an MPI communicator: tags encode group and sequence number, so any number of operations may be
// in progress and end in any order.
struct Lane {
  MPI_Comm comm = MPI_COMM_NULL;
  int group = 0;             // different for groups that have two ranks in common
  int sequence_bits = 0;     // number of bits that a tag has room for
  std::vector<int> members;  // ranks in comm, by rank in the group
  int rank = 0;              // in the group

  static constexpr int kGroupBits = 12;
  enum Phase { kMessage = 0, kFirst = 1, kSecond = 2 };  // between a pair; the phases of a collective
  int tag(Phase phase, uint64_t sequence) const;
  int size() const { return members.size(); }
};

// An operation that can be waited for. Every message of a pair, and every collective between any two ranks, begins with
// a description of the request, so that ranks that disagree fail instead of misinterpreting each other's bytes. A
// collective completes only when every rank has begun the same one.
class WaitableOperation : public Operation, public Completion {
 public:
  WaitableOperation(const Lane& lane, CommRequest request);

  void begin(Engine& engine) final;
  void completed(Engine& engine, const Transfer& transfer) final;
  void finished(const std::string& error) final { finish(error); }

 protected:
  // Like begin() and completed(), but for the data.
  virtual void begin_data(Engine& engine) = 0;
  virtual void completed_data(Engine&, const Transfer&) {}

  const Lane lane_;
  CommRequest request_;

 private:
  static constexpr int kSignatureSent = -2;  // a transfer kind
  static constexpr size_t kSignature = 128;  // characters
  using Signature = std::array<char, kSignature>;

  void send_signature(Engine& engine, int peer);
  void receive_signature(Engine& engine, int peer);
  Lane::Phase phase() const;

  Signature mine_{};
  std::vector<Signature> theirs_;  // by rank in the group
};

// The request's tensors must be on the CPU.
std::shared_ptr<WaitableOperation> make_operation(const Lane& lane, CommRequest request);

}  // namespace shardline::mpi
