// One NCCL communicator and its stream, used by the rank's thread. The communicator and its works share it.
//
// NCCL enqueues operations on the stream in the background, because it may first have to connect to other ranks. An
// event can mark their end only after that, so every function that needs the event waits until NCCL has enqueued them.
#pragma once
#include <list>
#include <memory>

#include "core/comm/nccl/nccl_world.h"

namespace shardline {

class NcclChannel {
 public:
  // Takes ownership of comm, which is registered with the world.
  NcclChannel(NcclWorldPtr world, void* comm, std::shared_ptr<const CommIdentity> identity);
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  void* comm() const { return comm_; }

  // Adds a send or receive to the next launch. This and the next two functions throw DistributedError after a failure
  // of the world.
  NcclBatchPtr add_message(CommRequest request);
  NcclBatchPtr launch_collective(CommRequest request);
  // Launches the collected messages and waits until NCCL has enqueued everything on the stream.
  void flush();
  // Launches the batch unless it is already launched; waits until NCCL has enqueued the previous one.
  void start(const NcclBatchPtr& batch);

  // Returns whether the batch has ended or its world has failed. Launches the batch unless it is already launched.
  // Never blocks and never throws.
  bool advance(const NcclBatchPtr& batch);
  // Makes the current stream wait for the batch, which contains `request`. Throws DistributedError as above.
  void wait_for(const NcclBatchPtr& batch, const CommRequest& request);

 private:
  void launch_messages();
  void launch(const NcclBatchPtr& batch);
  int enqueue(const NcclBatch& batch);
  int enqueue(const CommRequest& request);
  void finish_launch();
  void mark_end();
  void refuse_after_failure(const CommRequest& request);
  [[noreturn]] void fail(const CommRequest& request, const NcclWorld::State& state,
                         std::optional<Work::TimePoint> since = std::nullopt);
  void close();  // if the device reports an error, the world fails

  NcclWorldPtr world_;
  void* comm_;
  std::shared_ptr<const CommIdentity> identity_;
  c10::Stream stream_;
  NcclBatchPtr messages_;              // sends and receives that have not been launched
  NcclBatchPtr launching_;             // the batch that NCCL is enqueueing
  std::list<NcclBatchPtr> under_way_;  // kept so that their tensors are freed on this thread
};
using NcclChannelPtr = std::shared_ptr<NcclChannel>;

}  // namespace shardline
