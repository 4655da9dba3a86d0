// One NCCL communicator with its stream, on the rank's thread; shared by the communicator and its works.
//
// NCCL puts operations into the stream in the background: it may need the other ranks for a connection first. Only then
// may an event mark their end, so every step that needs the event waits for NCCL to get there.
#pragma once
#include <list>
#include <memory>

#include "core/comm/nccl/nccl_world.h"

namespace shardline {

class NcclChannel {
 public:
  // Owns comm from here on.
  NcclChannel(NcclWorldPtr world, void* comm, std::shared_ptr<const CommIdentity> identity);
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  void* comm() const { return comm_; }

  // Collects a send or receive for the next launch. All three throw DistributedError after a failure of the world.
  NcclBatchPtr add_message(CommRequest request);
  NcclBatchPtr launch_collective(CommRequest request);
  // Launches the messages that were collected, and waits until NCCL has put everything into the stream.
  void flush();
  // Launches the batch if that has not happened yet; waits until NCCL has put the one before into the stream.
  void start(const NcclBatchPtr& batch);

  // Whether the batch is over, or its world has failed. Launches it if that has not happened yet; never blocks and
  // never throws.
  bool advance(const NcclBatchPtr& batch);
  // Makes the current stream wait for the batch, of which `request` is one. Throws DistributedError as above.
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
  void close();  // an error of the device fails the world

  NcclWorldPtr world_;
  void* comm_;
  std::shared_ptr<const CommIdentity> identity_;
  c10::Stream stream_;
  NcclBatchPtr messages_;              // sends and receives that wait for their launch
  NcclBatchPtr launching_;             // which NCCL is putting into the stream
  std::list<NcclBatchPtr> under_way_;  // to free their tensors on this thread
};
using NcclChannelPtr = std::shared_ptr<NcclChannel>;

}  // namespace shardline
