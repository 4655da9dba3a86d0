// State that the NCCL communicators of one rank share. They fail together, and one thread watches all of them, because
// neither the host nor a stream that waits for NCCL notices errors.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/communicator_base.h"
#include "core/comm/nccl/nccl_api.h"
#include "core/device/stream_wait.h"
#include "core/flight/flight_ring.h"

namespace shardline {

// Explains an NCCL result other than ncclSuccess.
const char* nccl_result_text(int result);

// Operations that start together as one NCCL group and end with one event. Shared by the rank's thread and the watching
// thread; the former sets in_stream last.
struct NcclBatch {
  NcclBatch(std::shared_ptr<const CommIdentity> group, void* communicator, c10::DeviceType type)
      : identity(std::move(group)), comm(communicator), end(type) {}

  std::shared_ptr<const CommIdentity> identity;
  void* comm;
  std::vector<CommRequest> requests;  // keep their tensors alive until the rank's stream waits for the end
  c10::Event end;                     // recorded in their stream after all of them
  std::atomic<bool> in_stream = false;

  bool is_over() const { return in_stream && end.query(); }
};
using NcclBatchPtr = std::shared_ptr<NcclBatch>;

class NcclWorld {
 public:
  // control: carries host values between the same ranks; aborted when the watching thread detects a failure.
  NcclWorld(const NcclApi& api, at::Device device, CommunicatorPtr control);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  const NcclApi& api() const { return api_; }
  at::Device device() const { return device_; }
  c10::Stream current_stream() const;

  // Returns a high-priority stream that no other group of this rank uses until it is given back. Groups on the same
  // stream could wait for each other.
  c10::Stream take_stream();
  void give_back(const c10::Stream& stream);

  // Adds or removes a communicator that fail() aborts. A communicator that is removed has no running operations.
  void add(void* comm);
  bool remove(void* comm);  // false: it has been aborted and thus freed

  // The message of the first failure, which names rank, operation and group; "" if there was none.
  std::string failure() const;
  // Aborts all communicators. Only the first message is kept.
  void fail(const std::string& message);
  // As above, but first sends the message to the other ranks, which ends the job.
  void end_job(const std::string& message);
  // As above, for an exception that must not leave a destructor or a poll: it reports that work on the device failed,
  // or repeats the failure of this world.
  void fail(const std::exception& error);
  // Runs `call` unless the communicators have been aborted; they are not aborted while it runs. Returns whether it ran.
  bool use(const std::function<void()>& call);

  // The state of a communicator. The error is NCCL's, or the world's failure if there is one.
  struct State {
    bool busy = false;
    std::string error;
    bool remote = false;  // the error occurred on another rank, which is about to end the job with its own message
  };
  State state_of(void* comm) const;
  State state_of(void* comm, int result) const;  // after a call that returned `result`
  // Polls until the communicator is idle or has failed, or until the time limit expires, which is also an error. Does
  // not abort anything.
  State settle(void* comm, const TimeLimit& limit) const;
  // Gives another rank that has failed time to report its error. Call it before reporting that rank's failure.
  static void let_others_speak();

  // Watches the batch, which has been enqueued, until it ends.
  void watch(const NcclBatchPtr& batch);
  // Makes the rank's stream wait for the end of the batch. The limit counts from when the stream starts waiting.
  void make_wait(const NcclBatchPtr& batch, const std::shared_ptr<StreamWait>& wait);

 private:
  struct Watched {
    NcclBatchPtr batch;
    std::vector<std::shared_ptr<StreamWait>> waits;
    std::optional<Work::TimePoint> since;  // when the first of these waits was seen to have begun
  };

  void watch_over();
  // The functions below are called with the mutex locked.
  State look();  // checks what is running; the error is the first failure found
  static void end(const Watched& watched, FlightState state);
  State meaning_of(void* comm, int result) const;
  std::string message_of(const std::exception& error) const;
  void abort_comms();

  const NcclApi& api_;
  const at::Device device_;
  const CommunicatorPtr control_;
  const int rank_;
  std::vector<c10::Stream> streams_;  // streams in use; accessed only by the rank's thread

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::list<void*> comms_;  // not yet freed
  std::list<Watched> watched_;
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};
using NcclWorldPtr = std::shared_ptr<NcclWorld>;

}  // namespace shardline
