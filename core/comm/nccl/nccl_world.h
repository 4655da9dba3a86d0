// What the NCCL communicators of one rank share: they fail together, and one thread watches over them, since neither
// the host nor a stream that waits for NCCL notices an error.
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
#include "core/comm/flight_ring.h"
#include "core/comm/nccl/nccl_api.h"
#include "core/device/stream_wait.h"

namespace shardline {

// What a result of NCCL other than success means, in words.
const char* nccl_result_text(int result);

// Operations that start together, in one NCCL group, and end with one event. Shared by the rank's thread and the
// watching one; in_stream is set last by the first.
struct NcclBatch {
  NcclBatch(std::shared_ptr<const CommIdentity> group, void* communicator, c10::DeviceType type)
      : identity(std::move(group)), comm(communicator), end(type) {}

  std::shared_ptr<const CommIdentity> identity;
  void* comm;
  std::vector<CommRequest> requests;  // with their tensors until the rank's stream waits for the end
  c10::Event end;                     // of a stream that has all of them
  std::atomic<bool> in_stream = false;

  bool is_over() const { return in_stream && end.query(); }
};
using NcclBatchPtr = std::shared_ptr<NcclBatch>;

class NcclWorld {
 public:
  // control: carries host values between the same ranks; is aborted when the watching thread finds a failure.
  NcclWorld(const NcclApi& api, at::Device device, CommunicatorPtr control);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  const NcclApi& api() const { return api_; }
  at::Device device() const { return device_; }
  c10::Stream current_stream() const;

  // A stream of high priority that no other group of this rank uses, until it is given back: groups that share one
  // could wait for each other.
  c10::Stream take_stream();
  void give_back(const c10::Stream& stream);

  // What fail() aborts. Nothing of a communicator that is removed is under way.
  void add(void* comm);
  void remove(void* comm);

  // "" while all is well; else the message of the first failure, which names rank, operation and group.
  std::string failure() const;
  // Aborts all communicators; the first message counts.
  void fail(const std::string& message);
  // For an exception that must not leave a destructor or a poll: of the device, whose work has failed, or of what has
  // failed this world already.
  void fail(const std::exception& error);
  // Runs `call`, during which communicators are not aborted, unless they were already. Returns whether it ran.
  bool use(const std::function<void()>& call);

  // What a communicator is doing. The error is NCCL's, or the failure where there is one.
  struct State {
    bool busy = false;
    std::string error;
    bool remote = false;  // of another rank, which is about to end the job with its own message
  };
  State state_of(void* comm) const;
  State state_of(void* comm, int result) const;  // of a call that returned this
  // Asks until the communicator is not busy, or has an error: the limit that has passed is one. Aborts nothing.
  State settle(void* comm, const TimeLimit& limit) const;
  // Before a message about another rank's failure: gives that rank time for its own.
  static void let_others_speak();

  // The batch is in its stream: it is watched until it is over.
  void watch(const NcclBatchPtr& batch);
  // The rank's stream waits for the end of the batch; the limit counts from when it gets there.
  void make_wait(const NcclBatchPtr& batch, const std::shared_ptr<StreamWait>& wait);

 private:
  struct Watched {
    NcclBatchPtr batch;
    std::vector<std::shared_ptr<StreamWait>> waits;
    std::optional<Work::TimePoint> since;  // when the first of them was seen to have begun
  };

  void watch_over();
  // Below: with the lock.
  State look();  // at what is under way: the error is the message of the first failure found
  static void end(const Watched& watched, FlightState state);
  State meaning_of(void* comm, int result) const;
  std::string message_of(const std::exception& error) const;
  void abort_comms();

  const NcclApi& api_;
  const at::Device device_;
  const CommunicatorPtr control_;
  const int rank_;
  std::vector<c10::Stream> streams_;  // taken; of the rank's thread

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::list<void*> comms_;  // alive
  std::list<Watched> watched_;
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};
using NcclWorldPtr = std::shared_ptr<NcclWorld>;

}  // namespace shardline
