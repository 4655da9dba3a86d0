#include "core/comm/nccl/nccl_communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <list>
#include <optional>
#include <thread>

#include "core/comm/communicator_base.h"
#include "core/comm/flight_ring.h"
#include "core/comm/timeouts.h"

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

const char* meaning_of(int result) {
  switch (result) {
    case 1:
      return "a CUDA call failed, often an earlier kernel's error or a device that is gone";
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

NcclType type_of(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return NcclType::int8;
    case at::kByte:
    case at::kBool:
      return NcclType::uint8;
    case at::kInt:
      return NcclType::int32;
    case at::kLong:
      return NcclType::int64;
    case at::kHalf:
      return NcclType::float16;
    case at::kBFloat16:
      return NcclType::bfloat16;
    case at::kFloat:
      return NcclType::float32;
    case at::kDouble:
      return NcclType::float64;
    default:
      SL_ASSERT(false, "NCCL does not support ", c10::toString(type));
  }
  return NcclType::uint8;
}

bool goes_well(int result) {
  return result == kNcclSuccess || result == kNcclInProgress;
}

std::string library_name(const NcclApi& api) {
  int version = 0;
  api.get_version(&version);
  return cat("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// What the communicators of one world share: they fail together.
struct NcclWorld {
  const NcclApi& api;
  int device;
  std::string failure;
  std::list<void*> comms;  // alive

  void fail(const std::string& reason) {
    if (!failure.empty()) return;
    failure = reason;
    for (void* comm : comms) api.abort(comm);
    comms.clear();
  }

  int state_of(void* comm) const {
    int state = kNcclSuccess;
    const int asked = api.async_error(comm, &state);
    return asked == kNcclSuccess ? state : asked;
  }

  // "" while all is well.
  std::string error_text(void* comm, int result) const {
    if (goes_well(result)) return "";
    const char* detail = api.last_error(comm);
    return cat(meaning_of(result), " (NCCL result ", result, detail && *detail ? cat(": ", detail) : "", ")");
  }

  // Polls until the communicator has nothing in progress. Returns "" or what went wrong; aborts nothing.
  std::string settle(void* comm, int result, const TimeLimit& limit) const {
    const auto begin = Clock::now();
    while (result == kNcclInProgress) {
      result = state_of(comm);
      if (result != kNcclInProgress) break;
      if (Clock::now() - begin > limit.time)
        return cat("NCCL was still busy when the time limit expired", limit.advice());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return error_text(comm, result);
  }
};
using NcclWorldPtr = std::shared_ptr<NcclWorld>;

// Operations that start together, in one NCCL group, and end with one event. `event` is null until NCCL has put all of
// them into the stream, which it does in the background: a first message to a peer makes the connection.
struct Batch {
  NcclWorldPtr world;
  std::vector<CommRequest> requests;  // with their tensors, which live as long as the operation
  void* event = nullptr;
  bool over = false;

  explicit Batch(NcclWorldPtr w) : world(std::move(w)) {}
  ~Batch() {
    if (event != nullptr) world->api.free_event(event);
  }

  bool check() {
    if (over) return true;
    if (event == nullptr || !world->api.event_done(event)) return false;
    over = true;
    for (const CommRequest& request : requests) flight_ring().end(request.ticket, FlightState::done);
    requests.clear();
    return true;
  }
};
using BatchPtr = std::shared_ptr<Batch>;

// One NCCL communicator with its stream; shared by the communicator and its works.
class Channel {
 public:
  Channel(NcclWorldPtr world, void* comm, std::shared_ptr<const CommIdentity> identity)
      : world_(std::move(world)), comm_(comm), identity_(std::move(identity)) {
    world_->comms.push_back(comm_);
    stream_ = world_->api.make_stream(world_->device);
  }
  ~Channel() {
    close();
    world_->api.free_stream(stream_);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  NcclWorld& world() { return *world_; }
  void* comm() { return comm_; }

  BatchPtr add_message(CommRequest request) {
    refuse_after_failure(request);
    if (!messages_) messages_ = std::make_shared<Batch>(world_);
    messages_->requests.push_back(std::move(request));
    return messages_;
  }

  BatchPtr launch_collective(CommRequest request) {
    refuse_after_failure(request);
    launch_messages();
    const auto batch = std::make_shared<Batch>(world_);
    batch->requests.push_back(std::move(request));
    launch(batch);
    return batch;
  }

  // Launches the messages that were collected, and waits until NCCL has everything in the stream.
  void flush() {
    launch_messages();
    finish_launch();
  }

  // Whether the batch is complete. Launches it if that has not happened yet; never blocks.
  bool advance(const BatchPtr& batch) {
    if (!world_->failure.empty()) return batch->over;
    if (launching_ && world_->state_of(comm_) == kNcclSuccess) mark_end();
    if (batch == messages_ && !launching_) launch_messages();
    return batch->check();
  }

  // "" while all is well.
  std::string trouble() {
    return world_->failure.empty() ? world_->error_text(comm_, world_->state_of(comm_)) : world_->failure;
  }

  [[noreturn]] void fail(const CommRequest& request, const std::string& reason,
                         std::optional<Work::TimePoint> since = std::nullopt) {
    end_world(request, identity_->error(request, reason, since), reason);
  }

  [[noreturn]] void expire(const CommRequest& request, Work::TimePoint since) {
    const DistributedError error = identity_->timed_out(request, since);
    end_world(request, error, error.what());
  }

 private:
  [[noreturn]] void end_world(const CommRequest& request, const DistributedError& error, const std::string& reason) {
    flight_ring().end(request.ticket, FlightState::failed);
    world_->fail(reason);
    throw error;
  }

  void refuse_after_failure(const CommRequest& request) {
    if (!world_->failure.empty()) fail(request, world_->failure);
  }

  void launch_messages() {
    if (messages_) launch(std::exchange(messages_, nullptr));
  }

  void launch(const BatchPtr& batch) {
    finish_launch();
    if (!world_->failure.empty()) return;
    const NcclApi& api = world_->api;
    api.wait_for_current(stream_, world_->device);
    int result = api.group_start();
    for (const CommRequest& request : batch->requests)
      if (goes_well(result)) result = enqueue(request);
    // The group is closed in any case; the first error counts.
    const int ended = api.group_end();
    if (goes_well(result)) result = ended;
    launching_ = batch;
    if (result == kNcclSuccess) mark_end();
    if (!goes_well(result)) world_->fail(world_->error_text(comm_, result));  // waiting ranks get the error
  }

  // NCCL takes one launch at a time.
  void finish_launch() {
    if (!launching_) return;
    const CommRequest& first = launching_->requests.front();
    const auto since = Clock::now();
    if (const std::string error = world_->settle(comm_, kNcclInProgress, first.limit); !error.empty())
      fail(first, error, since);
    mark_end();
  }

  // An event can mark the end only after everything is in the stream.
  void mark_end() {
    launching_->event = world_->api.record_event(stream_);
    under_way_.remove_if([](const BatchPtr& earlier) { return earlier->check(); });
    under_way_.push_back(std::exchange(launching_, nullptr));
  }

  int enqueue(const CommRequest& request) {
    const NcclApi& api = world_->api;
    const at::Tensor& subject = request.input.defined() ? request.input : request.output;
    const NcclType type = type_of(subject.scalar_type());
    const bool max = request.reduce == ReduceOp::max;
    const void* from = request.input.defined() ? request.input.const_data_ptr() : nullptr;
    void* to = request.output.defined() ? request.output.mutable_data_ptr() : nullptr;
    const size_t count = subject.numel();
    const int size = identity_->size();
    switch (request.op) {
      case CommOp::barrier:
      case CommOp::all_reduce:
        return api.all_reduce(from, to, count, type, max, comm_, stream_);
      case CommOp::reduce_scatter:
        return api.reduce_scatter(from, to, count / size, type, max, comm_, stream_);
      case CommOp::all_gather:
        return api.all_gather(from, to, count, type, comm_, stream_);
      case CommOp::broadcast:
        return api.broadcast(from, to, count, type, request.peer, comm_, stream_);
      case CommOp::send:
        return api.send(from, count, type, request.peer, comm_, stream_);
      case CommOp::recv:
        return api.recv(to, count, type, request.peer, comm_, stream_);
      case CommOp::all_to_all:
        break;
    }
    const size_t part = count / size, bytes = part * subject.element_size();
    int result = kNcclSuccess;
    for (int peer = 0; peer < size && goes_well(result); ++peer) {
      result = api.send(static_cast<const char*>(from) + peer * bytes, part, type, peer, comm_, stream_);
      if (goes_well(result)) result = api.recv(static_cast<char*>(to) + peer * bytes, part, type, peer, comm_, stream_);
    }
    return result;
  }

  // After success: what is under way is finished, then freed. After failure everything was aborted already.
  void close() {
    if (std::uncaught_exceptions() > 0) world_->fail("the rank stopped with an exception");
    if (!world_->failure.empty()) return;
    const NcclApi& api = world_->api;
    std::string error;
    try {
      flush();
      if (!world_->failure.empty()) return;
      error = world_->settle(comm_, api.finalize(comm_), timeouts().collective);
    } catch (const Error&) {
      return;  // flush() has aborted the world
    }
    world_->comms.remove(comm_);
    if (error.empty())
      api.destroy(comm_);
    else
      api.abort(comm_);
  }

  NcclWorldPtr world_;
  void* comm_;
  std::shared_ptr<const CommIdentity> identity_;
  void* stream_ = nullptr;
  BatchPtr messages_;   // sends and receives that wait for their launch
  BatchPtr launching_;  // which NCCL is putting into the stream
  std::list<BatchPtr> under_way_;
};
using ChannelPtr = std::shared_ptr<Channel>;

class NcclWork : public Work {
 public:
  NcclWork(ChannelPtr channel, BatchPtr batch, CommRequest request)
      : channel_(std::move(channel)), batch_(std::move(batch)), request_(std::move(request)) {}

  bool poll() override { return channel_->advance(batch_) || !channel_->trouble().empty(); }

 protected:
  void await(TimePoint since) override {
    while (!channel_->advance(batch_)) {
      if (const std::string error = channel_->trouble(); !error.empty()) channel_->fail(request_, error, since);
      if (Clock::now() - since > request_.limit.time) channel_->expire(request_, since);
      std::this_thread::yield();
    }
    channel_->world().api.current_waits_for(batch_->event, channel_->world().device);
  }

 private:
  ChannelPtr channel_;
  BatchPtr batch_;
  CommRequest request_;
};

class NcclCommunicator : public CommunicatorBase {
 public:
  NcclCommunicator(NcclWorldPtr world, void* comm, CommunicatorPtr control, CommIdentity identity)
      : CommunicatorBase(std::move(identity)),
        world_(std::move(world)),
        control_(std::move(control)),
        channel_(std::make_shared<Channel>(world_, comm, this->identity())) {}

  std::shared_ptr<Communicator> split(int color, const std::string& group_name) override;

  void abort(const std::string& reason) override {
    world_->fail(cat("rank ", identity()->members[rank()], " aborted: ", reason));
    control_->abort(reason);
  }

 protected:
  WorkPtr start(CommRequest request) override {
    const at::Device device(world_->api.device_type, world_->api.device_type == at::kCPU ? -1 : world_->device);
    if (request.op == CommOp::barrier)
      request.input = request.output = at::zeros({1}, at::TensorOptions(at::kInt).device(device));
    for (const at::Tensor& tensor : {request.input, request.output})
      SL_ASSERT(!tensor.defined() || tensor.device() == device, "this rank's NCCL communicators carry tensors on ",
                device, ", not on ", tensor.device());
    const bool is_message = request.op == CommOp::send || request.op == CommOp::recv;
    const BatchPtr batch = is_message ? channel_->add_message(request) : channel_->launch_collective(request);
    return std::make_shared<NcclWork>(channel_, batch, std::move(request));
  }

 private:
  NcclWorldPtr world_;
  CommunicatorPtr control_;
  ChannelPtr channel_;
};

// NCCL makes a communicator in the background; this waits for it, and cleans up if it does not come.
void establish(NcclWorld& world, void* comm, int result, const CommIdentity& identity) {
  const TimeLimit limit = timeouts().start_up;
  const std::string error = world.settle(comm, result, limit);
  if (error.empty()) return;
  const std::list<void*> known = world.comms;
  world.fail(error);
  const bool was_known = std::find(known.begin(), known.end(), comm) != known.end();
  if (comm != nullptr && !was_known) world.api.abort(comm);
  throw DistributedError(cat("rank ", identity.members[identity.rank], " on host ", host_name(), ": the NCCL group ",
                             identity.name, " of ", identity.size(), " ranks could not be made within ",
                             limit.time.count() / 1000.0, " s: ", error, " [", identity.library, "]"));
}

std::shared_ptr<Communicator> NcclCommunicator::split(int color, const std::string& group_name) {
  channel_->flush();
  const std::vector<int> ranks = ranks_of_color(*control_, color);
  CommunicatorPtr control = control_->split(color, group_name);
  CommIdentity part;
  part.name = group_name;
  part.library = identity()->library;
  part.rank = control->rank();
  for (const int member : ranks) part.members.push_back(identity()->members[member]);
  // NCCL wants colors from 0: the lowest rank of the group serves.
  void* comm = nullptr;
  const int result = world_->api.split(channel_->comm(), ranks.front(), rank(), &comm);
  establish(*world_, channel_->comm(), result, *identity());
  establish(*world_, comm, kNcclInProgress, part);
  return std::make_shared<NcclCommunicator>(world_, comm, std::move(control), std::move(part));
}

}  // namespace

CommunicatorPtr make_nccl_world(CommunicatorPtr control, int device, const NcclApi& api) {
  const auto world = std::make_shared<NcclWorld>(NcclWorld{api, device, "", {}});
  CommIdentity identity;
  identity.name = control->name();
  identity.rank = control->rank();
  identity.library = library_name(api);
  for (int member = 0; member < control->size(); ++member) identity.members.push_back(member);

  // The first byte of rank 0's message says whether an id follows, so that a failure reaches all ranks.
  const at::Tensor message = at::zeros({1 + static_cast<int64_t>(sizeof(NcclId))}, at::kByte);
  char* const bytes = static_cast<char*>(message.mutable_data_ptr());
  NcclId id{};
  if (identity.rank == 0) {
    bytes[0] = static_cast<char>(api.get_unique_id(&id));
    std::memcpy(bytes + 1, id.data(), id.size());
  }
  control->broadcast(message, 0, {.what = "NCCL unique id", .timeout = timeouts().start_up})->wait();
  if (bytes[0] != kNcclSuccess)
    throw DistributedError(
        cat("NCCL cannot create a unique id on rank 0: ", meaning_of(bytes[0]), " [", identity.library, "]"));
  std::memcpy(id.data(), bytes + 1, id.size());

  void* comm = nullptr;
  const int result = api.init_rank(&comm, identity.size(), &id, identity.rank);
  establish(*world, comm, result, identity);
  return std::make_shared<NcclCommunicator>(world, comm, std::move(control), std::move(identity));
}

}  // namespace shardline
