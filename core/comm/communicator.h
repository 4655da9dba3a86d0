// Communication between ranks. One interface with five implementations: `local` (one rank), `threads` (ranks are
// threads of this process), `mpi` (CPU tensors over Open MPI; CUDA tensors staged through host memory), `nccl` (only
// CUDA tensors), `fake` (a dry run of any world size: every operation succeeds immediately and transfers nothing).
//
// Guarantees
//  - Operations on one communicator match in the order in which they are issued, and so do the sends and receives of a
//    pair. All ranks of a group issue the same collectives in the same order; different communicators are independent.
//  - On CPUs a collective is complete only when every rank has issued it, even on the root of a broadcast. If ranks
//    disagree about kind, operation, root, type or length, all of them get a DistributedError, and so does the receiver
//    of a message.
//  - Tensors are contiguous; the caller must not use them until it has waited for the Work.
//  - An operation on tensors of an accelerator begins after the work that this thread has queued on its current stream.
//    Waiting for it makes that stream wait, not the host. The tensors are freed on this stream.
//  - CPU communicators define the order of addition: by ascending group rank into an accumulator of at least fp32, each
//    element on one rank, which copies it to the others. So all ranks and all CPU implementations get equal bits.
//  - Every wait has a limit (`timeouts.h`), counted from the first call of Work::wait: time that a rank spends
//    computing after it issued the operation does not count. If an operation fails or exceeds its limit, the waiting
//    rank gets a DistributedError.
//  - Every operation leaves a record in the flight ring (`flight_ring.h`).
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/timeouts.h"

namespace shardline {

enum class ReduceOp { sum, max };

struct CommOptions {
  ReduceOp op = ReduceOp::sum;
  // The purpose of the operation, for messages and records: "gradients of h.3". Must outlive the call (a literal or a
  // string of the plan).
  const char* what = "";
  // 0: the limit that the table in timeouts.h gives for this kind of operation.
  TimeLimit timeout{std::chrono::milliseconds(0)};
};

// A started operation. Dropping the Work does not cancel it: the communicator keeps what it needs until the end.
class Work {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Work() = default;
  // Starts the operation if the communicator has only queued it, and advances it if that requires a call. Returns
  // whether it has succeeded or failed, in which case wait() returns or throws immediately. Never blocks and never
  // throws. Results may be read only after wait().
  virtual bool poll() = 0;
  // Like poll(), but first waits until this operation and all earlier ones have started; once the ranks are connected,
  // this needs no other rank. Throws DistributedError after a failure.
  virtual void start() { poll(); }
  // Tensors on CPUs: blocks until the operation has ended; throws DistributedError if it fails or exceeds its limit,
  // counted from the first call. Tensors on accelerators: work that this thread queues on its current stream from now
  // on runs after it; a failure, or a limit exceeded since the stream began to wait, ends the job.
  void wait();

 protected:
  // since: when wait() was first called.
  virtual void await(TimePoint since) = 0;
  // Whether await() makes a stream wait and not the host. Such waits are timed by events (core/device/stream_wait.h).
  virtual bool waits_on_stream() const { return false; }

 private:
  std::atomic<TimePoint> waiting_since_{TimePoint::min()};  // min: no wait yet
};
using WorkPtr = std::shared_ptr<Work>;

// The time that this thread or one of its streams has spent in Work::wait so far: communication that did not overlap
// with computation. Waits of streams are added when they end.
double waited_seconds();

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;  // "world", "tp", ...

  // In place: every rank ends with the reduction over all ranks.
  virtual WorkPtr all_reduce(const at::Tensor& tensor, const CommOptions& options = {}) = 0;
  // input: size() equal parts in rank order; output: part rank(), reduced over all ranks.
  virtual WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                 const CommOptions& options = {}) = 0;
  // output: the inputs of all size() ranks in rank order.
  virtual WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, const CommOptions& options = {}) = 0;
  // Input and output are size() equal parts; part j of the input goes to rank j, part i of the output is from rank i.
  virtual WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, const CommOptions& options = {}) = 0;
  virtual WorkPtr broadcast(const at::Tensor& tensor, int root, const CommOptions& options = {}) = 0;
  virtual WorkPtr send(const at::Tensor& tensor, int peer, const CommOptions& options = {}) = 0;
  virtual WorkPtr recv(const at::Tensor& tensor, int peer, const CommOptions& options = {}) = 0;
  virtual void barrier(const CommOptions& options = {}) = 0;

  // Collective over this communicator: ranks with equal color form a group, ordered by their rank here.
  virtual std::shared_ptr<Communicator> split(int color, const std::string& name) = 0;

  // Ends all waits on this rank and, if the implementation can, on its peers. The errors contain the reason.
  virtual void abort(const std::string& reason) = 0;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

// Convenience functions on top of the interface, for small host values.
at::Tensor gather_to_all(Communicator& comm, const at::Tensor& local);                  // [size, ...local.sizes()]
std::vector<std::string> gather_strings(Communicator& comm, const std::string& local);  // by rank
std::string broadcast_string(Communicator& comm, const std::string& value, int root);

// Collective, for large values that only rank 0 needs: calls `take` there with the text of each rank, in rank order.
// Rank 0 holds the text of one other rank at a time; the others receive nothing and return when rank 0 has their text.
using TakeText = std::function<void(int rank, const std::string& text)>;
void gather_on_first(Communicator& comm, const std::string& local, const TakeText& take);

}  // namespace shardline
