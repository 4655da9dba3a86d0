#include "core/comm/nccl/nccl_world.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <string_view>

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{5};
constexpr std::chrono::milliseconds kShortWait{1};  // NCCL normally enqueues an operation in less time
constexpr std::chrono::microseconds kBetweenQuestions{100};
constexpr int kStreams = 32;  // streams per priority in torch's pool, which hands them out in turn

c10::impl::VirtualGuardImpl guard_of(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

const char* nccl_result_text(int result) {
  switch (result) {
    case 1:
      return "a CUDA call failed; often an earlier kernel failed, or the GPU was lost";
    case 2:
      return "a system call failed: network, shared memory (/dev/shm too small?) or a lost connection";
    case 3:
      return "NCCL had an internal error, or memory was corrupted";
    case 4:
      return "NCCL was given an invalid argument";
    case 5:
      return "NCCL was used incorrectly: different versions or calls on different ranks, or two ranks on one GPU";
    case 6:
      return "a remote rank failed or ended; look at the other ranks' messages";
    default:
      return "unknown error";
  }
}

NcclWorld::NcclWorld(const NcclApi& api, at::Device device, CommunicatorPtr control)
    : api_(api), device_(device), control_(std::move(control)), rank_(current_rank()) {
  thread_ = std::thread([this] { watch_over(); });
}

NcclWorld::~NcclWorld() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

c10::Stream NcclWorld::current_stream() const {
  return guard_of(device_).getStream(device_);
}

c10::Stream NcclWorld::take_stream() {
  for (int i = 0; i < kStreams; ++i) {
    const c10::Stream stream = guard_of(device_).getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
    if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) continue;
    streams_.push_back(stream);
    return stream;
  }
  throw RunError(
      cat("rank ", current_rank(), " is in more than ", kStreams,
          " NCCL groups, and each needs a stream of its own; use fewer pipeline stages, or turn sharding off"));
}

void NcclWorld::give_back(const c10::Stream& stream) {
  std::erase(streams_, stream);
}

void NcclWorld::add(void* comm) {
  std::lock_guard lock(mutex_);
  comms_.push_back(comm);
}

bool NcclWorld::remove(void* comm) {
  std::lock_guard lock(mutex_);
  watched_.remove_if([&](const Watched& watched) {
    if (watched.batch->comm != comm) return false;
    end(watched, FlightState::done);
    return true;
  });
  return comms_.remove(comm) > 0;
}

void NcclWorld::end(const Watched& watched, FlightState state) {
  for (const CommRequest& request : watched.batch->requests) flight_ring().end(request.ticket, state);
}

std::string NcclWorld::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void NcclWorld::fail(const std::string& message) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = message;
  abort_comms();
}

void NcclWorld::end_job(const std::string& message) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = message;
  }
  control_->abort(failure());  // first, so that the message is sent even if aborting NCCL hangs
  std::lock_guard lock(mutex_);
  abort_comms();
}

void NcclWorld::fail(const std::exception& error) {
  fail(message_of(error));
}

std::string NcclWorld::message_of(const std::exception& error) const {
  return cat("rank ", rank_, " on host ", host_name(), ": ", error.what());
}

// Aborts all communicators in one NCCL group. A single abort ends the operations of its communicator and then waits
// until the device is idle, which never happens while another communicator's operation runs.
void NcclWorld::abort_comms() {
  for (const Watched& watched : watched_) end(watched, FlightState::failed);
  watched_.clear();
  api_.group_start();
  for (void* comm : comms_) api_.abort(comm);
  api_.group_end();
  comms_.clear();
}

bool NcclWorld::use(const std::function<void()>& call) {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return false;
  call();
  return true;
}

NcclWorld::State NcclWorld::state_of(void* comm) const {
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) return {.error = failure_};
  int state = kNcclSuccess;
  const int asked = api_.async_error(comm, &state);
  return meaning_of(comm, asked == kNcclSuccess ? state : asked);
}

NcclWorld::State NcclWorld::state_of(void* comm, int result) const {
  std::lock_guard lock(mutex_);
  return failure_.empty() ? meaning_of(comm, result) : State{.error = failure_};
}

NcclWorld::State NcclWorld::meaning_of(void* comm, int result) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return {.busy = result == kNcclInProgress};
  const char* detail = api_.last_error(comm);
  const bool is_full = detail && std::string_view(detail).find("out of memory") != std::string_view::npos;
  const char* text = is_full
                         ? "the GPU has no memory left for NCCL; end other processes on it, or make the plan smaller "
                           "(smaller microbatches, activation checkpointing, offloading, sharding)"
                         : nccl_result_text(result);
  return {.error = cat(text, " (NCCL result ", result, detail && *detail ? cat(": ", detail) : "", ")"),
          .remote = result == kNcclRemoteError};
}

NcclWorld::State NcclWorld::settle(void* comm, const TimeLimit& limit) const {
  const auto begin = Clock::now();
  for (;;) {
    const State state = state_of(comm);
    if (!state.busy) return state;
    const auto passed = Clock::now() - begin;
    if (passed > limit.time) return {.error = cat("NCCL was still busy when the time limit expired", limit.advice())};
    if (passed < kShortWait)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kBetweenQuestions);
  }
}

void NcclWorld::watch(const NcclBatchPtr& batch) {
  {
    std::lock_guard lock(mutex_);
    watched_.push_back({batch, {}, {}});
  }
  wake_.notify_all();
}

void NcclWorld::make_wait(const NcclBatchPtr& batch, const std::shared_ptr<StreamWait>& wait) {
  wait->end_with(batch->end);  // without the lock: waits if the device's queue is full, and limits must still apply
  std::lock_guard lock(mutex_);
  for (CommRequest& request : batch->requests) request.let_tensors_go();
  for (Watched& watched : watched_)
    if (watched.batch == batch) watched.waits.push_back(wait);
}

void NcclWorld::watch_over() {
  set_current_rank(rank_);
  guard_of(device_).setDevice(device_);  // event queries would otherwise initialize the first device for this thread
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait(lock, [&] { return stopping_ || !watched_.empty(); });
    wake_.wait_for(lock, kBetweenLooks, [&] { return stopping_; });
    const State found = look();
    if (found.error.empty()) continue;
    // The rank's thread may be waiting for the device, or may not check its operations for a long time.
    lock.unlock();
    if (found.remote) let_others_speak();
    lock.lock();
    if (!failure_.empty()) continue;
    lock.unlock();
    end_job(found.error);
    lock.lock();
  }
}

void NcclWorld::let_others_speak() {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

NcclWorld::State NcclWorld::look() {
  try {
    watched_.remove_if([](const Watched& watched) {
      if (!watched.batch->is_over()) return false;
      end(watched, FlightState::done);
      return true;
    });
    for (Watched& watched : watched_) {
      const CommRequest& first = watched.batch->requests.front();
      const CommIdentity& identity = *watched.batch->identity;
      int state = kNcclSuccess;
      const int asked = api_.async_error(watched.batch->comm, &state);
      const State now = meaning_of(watched.batch->comm, asked == kNcclSuccess ? state : asked);
      if (!now.error.empty() && watched.batch->is_over()) continue;  // it has ended since the check above
      if (!now.error.empty())
        return {.error = identity.error(first, now.error, watched.since).what(), .remote = now.remote};
      const auto has_begun = [](const std::shared_ptr<StreamWait>& wait) { return wait->has_begun(); };
      if (!watched.since && std::any_of(watched.waits.begin(), watched.waits.end(), has_begun))
        watched.since = Clock::now();
      if (watched.since && Clock::now() - *watched.since > first.limit.time)
        return {.error = identity.timed_out(first, *watched.since).what()};
    }
  } catch (const std::exception& error) {  // work on the device failed
    return {.error = message_of(error)};
  }
  return {};
}

}  // namespace shardline
