#include "core/comm/nccl/nccl_channel.h"

#include <exception>
#include <utility>

#include "core/device/accelerator.h"
#include "core/flight/flight_ring.h"
#include "core/memory/tensor_data.h"

namespace shardline {
namespace {

using Clock = std::chrono::steady_clock;

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

}  // namespace

NcclChannel::NcclChannel(NcclWorldPtr world, void* comm, std::shared_ptr<const CommIdentity> identity)
    : world_(std::move(world)), comm_(comm), identity_(std::move(identity)), stream_(world_->take_stream()) {}

NcclChannel::~NcclChannel() {
  close();
  world_->give_back(stream_);
}

NcclBatchPtr NcclChannel::add_message(CommRequest request) {
  refuse_after_failure(request);
  if (!messages_) messages_ = std::make_shared<NcclBatch>(identity_, comm_, stream_.device_type());
  messages_->requests.push_back(std::move(request));
  return messages_;
}

NcclBatchPtr NcclChannel::launch_collective(CommRequest request) {
  refuse_after_failure(request);
  launch_messages();
  const auto batch = std::make_shared<NcclBatch>(identity_, comm_, stream_.device_type());
  batch->requests.push_back(std::move(request));
  launch(batch);
  return batch;
}

void NcclChannel::flush() {
  launch_messages();
  finish_launch();
}

void NcclChannel::start(const NcclBatchPtr& batch) {
  if (batch == messages_) launch_messages();
}

bool NcclChannel::advance(const NcclBatchPtr& batch) {
  try {
    if (launching_) {
      const auto state = world_->state_of(comm_);
      if (!state.error.empty()) return true;
      if (!state.busy) mark_end();
    }
    if (batch == messages_ && !launching_) launch_messages();
    return batch->is_over() || !world_->failure().empty();
  } catch (const std::exception& error) {
    world_->fail(error);
    return true;
  }
}

void NcclChannel::wait_for(const NcclBatchPtr& batch, const CommRequest& request) {
  refuse_after_failure(request);
  flight_ring().wait(request.ticket);
  const auto wait = std::make_shared<StreamWait>(stream_.device());
  start(batch);
  if (batch == launching_) finish_launch();
  world_->make_wait(batch, wait);
}

void NcclChannel::launch_messages() {
  if (messages_) launch(std::exchange(messages_, nullptr));
}

void NcclChannel::launch(const NcclBatchPtr& batch) {
  finish_launch();
  std::erase_if(under_way_, [](const NcclBatchPtr& earlier) { return earlier->is_over(); });
  c10::Event given(stream_.device_type());
  given.record(world_->current_stream());
  given.block(stream_);
  int result = kNcclSuccess;
  const bool ran = world_->use([&] { result = enqueue(*batch); });
  const auto state = ran ? world_->state_of(comm_, result) : NcclWorld::State{.error = world_->failure()};
  if (!state.error.empty()) fail(batch->requests.front(), state);
  launching_ = batch;
  if (!state.busy) mark_end();
}

// NCCL handles only one launch at a time.
void NcclChannel::finish_launch() {
  if (!launching_) return;
  const CommRequest& first = launching_->requests.front();
  const auto since = Clock::now();
  if (const auto state = world_->settle(comm_, first.limit); !state.error.empty()) fail(first, state, since);
  mark_end();
}

void NcclChannel::mark_end() {
  launching_->end.record(stream_);
  launching_->in_stream = true;
  world_->watch(launching_);
  under_way_.push_back(std::exchange(launching_, nullptr));
}

int NcclChannel::enqueue(const NcclBatch& batch) {
  const NcclApi& api = world_->api();
  int result = api.group_start();
  for (const CommRequest& request : batch.requests)
    if (goes_well(result)) result = enqueue(request);
  // The group is closed in any case; the first error is kept.
  const int ended = api.group_end();
  return goes_well(result) ? ended : result;
}

int NcclChannel::enqueue(const CommRequest& request) {
  const NcclApi& api = world_->api();
  const NcclType type = type_of(request.subject().scalar_type());
  const bool max = request.reduce == ReduceOp::max;
  const char* from = data_of<char>(request.input);
  char* to = mutable_data_of<char>(request.output);
  void* const stream = stream_.native_handle();
  const size_t count = request.subject().numel();
  const int size = identity_->size();
  switch (request.op) {
    case CommOp::barrier:
    case CommOp::all_reduce:
      return api.all_reduce(from, to, count, type, max, comm_, stream);
    case CommOp::reduce_scatter:
      return api.reduce_scatter(from, to, count / size, type, max, comm_, stream);
    case CommOp::all_gather:
      return api.all_gather(from, to, count, type, comm_, stream);
    case CommOp::broadcast:
      return api.broadcast(from, to, count, type, request.peer, comm_, stream);
    case CommOp::send:
      return api.send(from, count, type, request.peer, comm_, stream);
    case CommOp::recv:
      return api.recv(to, count, type, request.peer, comm_, stream);
    case CommOp::all_to_all:
      break;
  }
  const size_t part = count / size, bytes = part * request.subject().element_size();
  int result = kNcclSuccess;
  for (int peer = 0; peer < size && goes_well(result); ++peer) {
    result = api.send(from + peer * bytes, part, type, peer, comm_, stream);
    if (goes_well(result)) result = api.recv(to + peer * bytes, part, type, peer, comm_, stream);
  }
  return result;
}

void NcclChannel::refuse_after_failure(const CommRequest& request) {
  if (const std::string failure = world_->failure(); !failure.empty()) fail(request, {.error = failure});
}

// Fails the world unless it has already failed.
void NcclChannel::fail(const CommRequest& request, const NcclWorld::State& state,
                       std::optional<Work::TimePoint> since) {
  flight_ring().end(request.ticket, FlightState::failed);
  const DistributedError error = identity_->error(request, state.error, since);
  if (state.remote) NcclWorld::let_others_speak();
  if (world_->failure().empty()) world_->end_job(error.what());
  throw DistributedError(world_->failure());
}

// Unless the world has failed, waits for operations in flight before freeing the communicator. After a failure,
// everything has already been aborted.
void NcclChannel::close() {
  if (std::uncaught_exceptions() > 0) world_->fail("the rank stopped with an exception");
  try {
    flush();
    int result = kNcclSuccess;
    if (!world_->use([&] { result = world_->api().finalize(comm_); })) return;
    std::string error = world_->state_of(comm_, result).error;
    if (error.empty()) error = world_->settle(comm_, timeouts().collective).error;
    if (!error.empty()) return world_->fail(error);
    const HostWait host_wait("the end of a group");
    for (const NcclBatchPtr& batch : under_way_)
      batch->end.synchronize();  // returns at once, since nothing is in flight any more
  } catch (const std::exception& error) {
    return world_->fail(error);
  }
  if (world_->remove(comm_)) world_->api().destroy(comm_);  // the world may have failed in the meantime
}

}  // namespace shardline
