// The base class of communicators: it checks arguments, numbers and records operations, looks up their limits and
// formats their errors. Implementations override start(), which receives only valid requests.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/comm/communicator.h"
#include "core/error.h"
#include "core/flight/flight_record.h"
#include "core/host_name.h"

namespace shardline {

class FlightRing;

enum class CommOp { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, send, recv, barrier };
const char* name_of(CommOp op);

// One operation as requested by one rank.
struct CommRequest {
  CommOp op = CommOp::barrier;
  at::Tensor input;         // undefined for recv and barrier; the output itself for all_reduce and broadcast
  at::Tensor output;        // undefined for send and barrier
  std::string type, shape;  // of the first defined tensor: "float32", "[4, 8]"; kept after the tensors are released
  ReduceOp reduce = ReduceOp::sum;
  int peer = -1;          // partner of send and recv, root of broadcast
  uint64_t sequence = 0;  // number among the group's collectives or the pair's sends or receives; equal on all ranks
  std::string what;
  TimeLimit limit{std::chrono::milliseconds(0)};  // the limit of a wait for the operation
  Work::TimePoint posted;
  uint64_t ticket = 0;  // the record's ticket in the flight ring

  // What all participants must agree on: "all_reduce(sum) number 3 of float32 x 1024". Equal texts match.
  std::string signature() const;

  const at::Tensor& subject() const { return input.defined() ? input : output; }
  void let_tensors_go() {
    input.reset();
    output.reset();
  }
};

// A group from the point of view of one of its ranks. It names the rank in errors, and each Work holds a reference,
// because it may outlive the communicator.
struct CommIdentity : FlightGroup {
  int rank = 0;         // in the group
  std::string library;  // "Open MPI 4.1.4"

  // The group of all ranks, for a communicator over this library ("" for none).
  static CommIdentity of_world(int rank, int size, const std::string& library = "");

  int size() const { return members.size(); }
  // "rank 1 on host a: recv number 3 of float32 [4, 8] from rank 0 in group pp 0>1 of 2 ranks (for recv_activation)
  // failed after a wait of 2.0 s (limit 1800.0 s), 9.5 s after it was posted: ..."
  // since: when the wait began; none if no wait has begun.
  DistributedError error(const CommRequest& request, const std::string& reason,
                         std::optional<Work::TimePoint> since = std::nullopt) const;
  DistributedError timed_out(const CommRequest& request, Work::TimePoint since) const;
};

// While the object exists, the flight ring shows that this thread waits for the operation. If the object is destroyed
// by an exception, the ring shows that the wait failed.
class RecordedWait {
 public:
  RecordedWait(const CommRequest& request, const CommIdentity& identity);
  ~RecordedWait();
  RecordedWait(const RecordedWait&) = delete;
  RecordedWait& operator=(const RecordedWait&) = delete;

 private:
  FlightRing& ring_;
  int rank_;
  uint64_t ticket_;
  int exceptions_;  // number of uncaught exceptions when the wait began
};

// The communicator of one rank. Only one thread at a time may use it.
class CommunicatorBase : public Communicator {
 public:
  int rank() const final { return identity_->rank; }
  int size() const final { return identity_->size(); }
  const std::string& name() const final { return identity_->name; }

  WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options) final;
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) final;
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) final;
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, const CommOptions& options) final;
  WorkPtr broadcast(const at::Tensor& tensor, int root, const CommOptions& options) final;
  WorkPtr send(const at::Tensor& tensor, int peer, const CommOptions& options) final;
  WorkPtr recv(const at::Tensor& tensor, int peer, const CommOptions& options) final;
  void barrier(const CommOptions& options) final;

 protected:
  explicit CommunicatorBase(CommIdentity identity);

  // Called in the order of issue, with checked arguments.
  virtual WorkPtr start(CommRequest request) = 0;

  const std::shared_ptr<const CommIdentity>& identity() const { return identity_; }
  // This rank's identity in the next split, for a part that consists of these ranks of the group.
  CommIdentity identity_of_part(const std::vector<int>& ranks, const std::string& name);

 private:
  WorkPtr issue(CommRequest request, const CommOptions& options);
  [[noreturn]] void refuse(const CommRequest& request, const std::string& rule) const;

  std::shared_ptr<const CommIdentity> identity_;
  uint64_t next_collective_ = 0, splits_ = 0;
  std::map<std::pair<CommOp, int>, uint64_t> next_of_pair_;
};

// A Work that has already finished when it is returned.
WorkPtr finished_work();

// The world ranks with this rank's color, in group order: for split() of CPU communicators. Collective.
std::vector<int> ranks_of_color(Communicator& comm, int color);

}  // namespace shardline
