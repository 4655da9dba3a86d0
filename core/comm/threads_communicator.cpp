#include "core/comm/threads_communicator.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "core/comm/communicator_base.h"
#include "core/comm/communicator_reduce.h"
#include "core/comm/device_moves.h"
#include "core/device/accelerator.h"
#include "core/device/stream_wait.h"
#include "core/flight/flight_ring.h"
#include "core/memory/tensor_data.h"

namespace shardline {
namespace {

// Where the participants of one operation meet: all ranks of a group, or a sender and a receiver.
struct Meeting {
  std::condition_variable changed;
  std::vector<std::optional<CommRequest>> requests;  // by rank in the group; for a pair: sender, receiver
  size_t arrived = 0;
  std::string agreed;   // signature of the first to arrive
  std::string first;    // that rank and its request, for error messages
  bool moving = false;  // whether a rank is accessing the tensors without holding the lock
  bool done = false;
  // The data of a send posted before its receive, for a CPU tensor and for an accelerator's tensor.
  std::unique_ptr<char[]> payload;
  at::Tensor device_payload;
  // For an accelerator's tensors: events after each rank's earlier work, and after the operation itself.
  std::vector<std::optional<c10::Event>> ready;  // by rank, as requests
  std::optional<c10::Event> end;

  bool has_payload() const { return payload || device_payload.defined(); }
};
using MeetingPtr = std::shared_ptr<Meeting>;

// (sender, receiver, sequence); (-1, -1, sequence) for collectives.
using MeetingKey = std::tuple<int, int, uint64_t>;

struct ThreadGroup {
  std::vector<int> members;
  std::map<MeetingKey, MeetingPtr> open;
};
using ThreadGroupPtr = std::shared_ptr<ThreadGroup>;

struct ThreadWorld {
  std::mutex mutex;  // guards everything here and in all groups and meetings
  std::string failure;
  std::vector<std::weak_ptr<ThreadGroup>> groups;
  std::map<std::tuple<ThreadGroup*, uint64_t, int>, std::pair<ThreadGroupPtr, size_t>>
      splitting;  // with the number of ranks that are still missing

  void fail(const std::string& reason) {  // requires the lock
    if (failure.empty()) failure = reason;
    for (const auto& weak : groups)
      if (const ThreadGroupPtr group = weak.lock())
        for (const auto& [key, meeting] : group->open) meeting->changed.notify_all();
  }
};
using ThreadWorldPtr = std::shared_ptr<ThreadWorld>;

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

std::optional<at::Device> accelerator_of(const CommRequest& request) {
  const at::Tensor& tensor = request.subject();
  return tensor.defined() && is_accelerator(tensor) ? std::optional(tensor.device()) : std::nullopt;
}

// Queues `work` on the current stream, after all earlier work of the ranks that have arrived.
template <class Queue>
void queue_after_all(Meeting& meeting, at::Device device, const Queue& work) {
  for (const auto& event : meeting.ready) event->block(stream_of(device));
  work();
  meeting.end = queued_so_far(device);
}

// Moves the data of a collective whose ranks have all arrived.
void perform(Meeting& meeting) {
  const std::vector<std::optional<CommRequest>>& ranks = meeting.requests;
  const CommRequest& first = *ranks[0];
  if (first.op == CommOp::barrier) return;
  if (const auto device = accelerator_of(first))
    return queue_after_all(meeting, *device, [&] { move_on_device(ranks); });
  const size_t n = ranks.size();
  const size_t element = first.input.element_size();
  const auto input = [&](size_t r) { return data_of<char>(ranks[r]->input); };
  const auto output = [&](size_t r) { return mutable_data_of<char>(ranks[r]->output); };
  switch (first.op) {
    case CommOp::all_reduce: {
      std::vector<const void*> inputs;
      std::vector<void*> outputs;
      for (size_t r = 0; r < n; ++r) {
        inputs.push_back(input(r));
        outputs.push_back(output(r));
      }
      reduce_in_order(first.reduce, first.input.scalar_type(), inputs, outputs, first.input.numel());
      break;
    }
    case CommOp::reduce_scatter: {
      const int64_t part = first.output.numel();
      for (size_t r = 0; r < n; ++r) {
        std::vector<const void*> inputs;
        for (size_t from = 0; from < n; ++from) inputs.push_back(input(from) + r * part * element);
        reduce_in_order(first.reduce, first.input.scalar_type(), inputs, {output(r)}, part);
      }
      break;
    }
    case CommOp::all_gather: {
      const size_t part = first.input.numel() * element;
      for (size_t r = 0; r < n; ++r)
        for (size_t from = 0; from < n; ++from) copy_bytes(output(r) + from * part, input(from), part);
      break;
    }
    case CommOp::all_to_all: {
      const size_t part = first.input.numel() / n * element;
      for (size_t r = 0; r < n; ++r)
        for (size_t from = 0; from < n; ++from) copy_bytes(output(r) + from * part, input(from) + r * part, part);
      break;
    }
    case CommOp::broadcast:
      for (size_t r = 0; r < n; ++r) copy_bytes(output(r), input(first.peer), first.input.numel() * element);
      break;
    default:
      SL_ASSERT(false, name_of(first.op), " is not a collective");
  }
}

class ThreadWork : public Work {
 public:
  ThreadWork(ThreadWorldPtr world, MeetingPtr meeting, std::shared_ptr<const CommIdentity> identity,
             CommRequest request)
      : world_(std::move(world)),
        meeting_(std::move(meeting)),
        identity_(std::move(identity)),
        device_(accelerator_of(request)),
        request_(std::move(request)) {}

  bool poll() override {
    std::lock_guard lock(world_->mutex);
    return is_over() && (!meeting_->end || meeting_->end->query());
  }

 protected:
  // Tensors of an accelerator: the host waits for all ranks to arrive, the stream for what the last of them queues.
  void await(TimePoint since) override {
    std::optional<StreamWait> wait;
    if (device_) wait.emplace(*device_);
    await_others(since);
    if (meeting_->end) wait->end_with(*meeting_->end);
  }
  bool waits_on_stream() const override { return device_.has_value(); }

 private:
  void await_others(TimePoint since) {
    const TimePoint deadline = since + request_.limit.time;
    std::unique_lock lock(world_->mutex);
    std::optional<RecordedWait> wait;
    if (!is_over()) wait.emplace(request_, *identity_);
    while (!is_over()) {
      if (meeting_->moving)
        meeting_->changed.wait(lock);
      else if (meeting_->changed.wait_until(lock, deadline) == std::cv_status::timeout && !is_over() &&
               !meeting_->moving)
        fail(identity_->timed_out(request_, since));
    }
    if (!meeting_->done) fail(identity_->error(request_, world_->failure, since));
  }

  // Requires the lock. While a rank accesses the tensors, they must stay alive even after a failure or a timeout.
  bool is_over() const { return meeting_->done || (!world_->failure.empty() && !meeting_->moving); }

  [[noreturn]] void fail(const DistributedError& error) {
    flight_ring().end(request_.ticket, FlightState::failed);
    throw error;
  }

  ThreadWorldPtr world_;
  MeetingPtr meeting_;
  std::shared_ptr<const CommIdentity> identity_;
  std::optional<at::Device> device_;
  CommRequest request_;
};

class ThreadCommunicator : public CommunicatorBase {
 public:
  ThreadCommunicator(ThreadWorldPtr world, ThreadGroupPtr group, CommIdentity identity)
      : CommunicatorBase(std::move(identity)), world_(std::move(world)), group_(std::move(group)) {}

  std::shared_ptr<Communicator> split(int color, const std::string& name) override;

  void abort(const std::string& reason) override {
    std::lock_guard lock(world_->mutex);
    world_->fail(cat("rank ", identity()->members[rank()], " aborted: ", reason));
  }

 protected:
  WorkPtr start(CommRequest request) override;

 private:
  MeetingPtr meet(const CommRequest& request, const MeetingKey& key, size_t place, size_t places);
  WorkPtr start_collective(CommRequest request);
  WorkPtr start_send(CommRequest request);
  WorkPtr start_recv(CommRequest request);
  void keep_payload(Meeting& meeting, const at::Tensor& input);
  void deliver(Meeting& meeting, const at::Tensor& input);
  void take_payload(std::unique_lock<std::mutex>& lock, Meeting& meeting, const MeetingKey& key,
                    const CommRequest& request);

  // Calls `move` without the lock. An exception (such as a lack of memory) propagates to this rank; when the rank ends,
  // it ends the others, which thus stop waiting for the move.
  template <class Move>
  static void without_lock(std::unique_lock<std::mutex>& lock, Meeting& meeting, const CommRequest& request,
                           const Move& move) {
    meeting.moving = true;
    lock.unlock();
    try {
      move();
    } catch (...) {
      flight_ring().end(request.ticket, FlightState::failed);
      lock.lock();
      meeting.moving = false;
      meeting.changed.notify_all();
      throw;
    }
    lock.lock();
    meeting.moving = false;
  }

  void finish(Meeting& meeting, const MeetingKey& key) {  // requires the lock
    meeting.done = true;
    for (const auto& request : meeting.requests)
      if (request) flight_ring().end(request->ticket, FlightState::done);
    meeting.requests.clear();  // frees the tensors
    group_->open.erase(key);
    meeting.changed.notify_all();
  }

  ThreadWorldPtr world_;
  ThreadGroupPtr group_;
  uint64_t splits_ = 0;
};

// Joins the meeting; fails the world if the first rank joined with a different operation. Requires the lock.
MeetingPtr ThreadCommunicator::meet(const CommRequest& request, const MeetingKey& key, size_t place, size_t places) {
  if (world_->failure.empty()) {
    const auto device = accelerator_of(request);
    const std::string signature = cat(request.signature(), device ? cat(" on ", *device) : "");
    const std::string who =
        cat("rank ", identity()->members[rank()], request.what.empty() ? "" : cat(" (for ", request.what, ")"));
    MeetingPtr& meeting = group_->open[key];
    if (!meeting) {
      meeting = std::make_shared<Meeting>();
      meeting->requests.resize(places);
      meeting->ready.resize(places);
      meeting->agreed = signature;
      meeting->first = who;
    }
    if (meeting->agreed == signature) {
      meeting->requests[place] = request;
      if (device) meeting->ready[place] = queued_so_far(*device);
      ++meeting->arrived;
      return meeting;
    }
    world_->fail(cat("the ranks of group ", name(), " disagree: ", meeting->first, " asks for ", meeting->agreed, ", ",
                     who, " for ", signature));
  }
  flight_ring().end(request.ticket, FlightState::failed);
  throw identity()->error(request, world_->failure);
}

WorkPtr ThreadCommunicator::start(CommRequest request) {
  if (request.op == CommOp::send) return start_send(std::move(request));
  if (request.op == CommOp::recv) return start_recv(std::move(request));
  return start_collective(std::move(request));
}

WorkPtr ThreadCommunicator::start_collective(CommRequest request) {
  const MeetingKey key{-1, -1, request.sequence};
  std::unique_lock lock(world_->mutex);
  const MeetingPtr meeting = meet(request, key, rank(), size());
  if (std::cmp_less(meeting->arrived, size()))
    return std::make_shared<ThreadWork>(world_, meeting, identity(), std::move(request));
  without_lock(lock, *meeting, request, [&] { perform(*meeting); });
  finish(*meeting, key);
  return finished_work();
}

WorkPtr ThreadCommunicator::start_send(CommRequest request) {
  const MeetingKey key{rank(), request.peer, request.sequence};
  std::unique_lock lock(world_->mutex);
  const MeetingPtr meeting = meet(request, key, 0, 2);
  if (meeting->arrived == 2) {  // the receiver is waiting
    without_lock(lock, *meeting, request, [&] { deliver(*meeting, request.input); });
    finish(*meeting, key);
    return finished_work();
  }
  without_lock(lock, *meeting, request, [&] { keep_payload(*meeting, request.input); });
  meeting->requests[0]->input.reset();  // releases the caller's tensor
  if (meeting->arrived == 2)            // the receiver arrived while we copied
    take_payload(lock, *meeting, key, request);
  return finished_work();
}

WorkPtr ThreadCommunicator::start_recv(CommRequest request) {
  const MeetingKey key{request.peer, rank(), request.sequence};
  std::unique_lock lock(world_->mutex);
  const MeetingPtr meeting = meet(request, key, 1, 2);
  if (meeting->moving || !meeting->has_payload())
    return std::make_shared<ThreadWork>(world_, meeting, identity(), std::move(request));
  take_payload(lock, *meeting, key, request);
  return finished_work();
}

// Copies the data of a send for a receiver that has not arrived yet.
void ThreadCommunicator::keep_payload(Meeting& meeting, const at::Tensor& input) {
  if (is_accelerator(input)) {
    const at::Tensor copy = at::empty_like(input);
    copy_on_device(copy, input);
    meeting.ready[0] = queued_so_far(input.device());
    meeting.device_payload = copy;
  } else {
    auto copy = std::make_unique_for_overwrite<char[]>(input.nbytes());
    copy_bytes(copy.get(), input.const_data_ptr(), input.nbytes());
    meeting.payload = std::move(copy);
  }
}

// Copies the message to the receiver, which has arrived. The source is `input` or, if undefined, the stored copy.
void ThreadCommunicator::deliver(Meeting& meeting, const at::Tensor& input) {
  const at::Tensor output = meeting.requests[1]->output;
  if (is_accelerator(output))
    return queue_after_all(meeting, output.device(),
                           [&] { copy_on_device(output, input.defined() ? input : meeting.device_payload); });
  copy_bytes(output.mutable_data_ptr(), input.defined() ? input.const_data_ptr() : meeting.payload.get(),
             output.nbytes());
}

void ThreadCommunicator::take_payload(std::unique_lock<std::mutex>& lock, Meeting& meeting, const MeetingKey& key,
                                      const CommRequest& request) {
  without_lock(lock, meeting, request, [&] { deliver(meeting, {}); });
  finish(meeting, key);
}

std::shared_ptr<Communicator> ThreadCommunicator::split(int color, const std::string& group_name) {
  const std::vector<int> ranks = ranks_of_color(*this, color);
  CommIdentity part = identity_of_part(ranks, group_name);
  // The first rank of the new group creates it; the last one removes the entry through which the others found it.
  std::lock_guard lock(world_->mutex);
  const auto key = std::make_tuple(group_.get(), splits_++, color);
  auto& [group, missing] = world_->splitting[key];
  if (!group) {
    group = std::make_shared<ThreadGroup>();
    missing = ranks.size();
    world_->groups.push_back(group);
  }
  const ThreadGroupPtr found = group;
  if (--missing == 0) world_->splitting.erase(key);
  return std::make_shared<ThreadCommunicator>(world_, found, std::move(part));
}

}  // namespace

void rethrow_of_rank(const std::exception_ptr& exception, int rank) {
  const std::string who = cat("rank ", rank);
  const auto named = [&](const std::exception& error) {
    const std::string text = error.what();
    return text.find(who) == std::string::npos ? cat(who, ": ", text) : text;
  };
  try {
    std::rethrow_exception(exception);
  } catch (const OfAllRanks&) {
    throw;
  } catch (const DistributedError& error) {
    throw DistributedError(named(error));
  } catch (const DataError& error) {
    throw DataError(named(error));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(named(error));
  } catch (const Interrupted& error) {
    throw Interrupted(named(error));
  } catch (const ConfigError& error) {
    throw ConfigError(named(error));
  } catch (const InvariantError& error) {
    throw InvariantError(named(error));
  } catch (const std::exception& error) {
    throw RunError(named(error));
  }
}

std::vector<CommunicatorPtr> make_thread_world(int n) {
  SL_ASSERT(n > 0, "a world of ", n, " ranks");
  const auto world = std::make_shared<ThreadWorld>();
  const auto group = std::make_shared<ThreadGroup>();
  world->groups.push_back(group);
  std::vector<CommunicatorPtr> ranks;
  for (int rank = 0; rank < n; ++rank)
    ranks.push_back(std::make_shared<ThreadCommunicator>(world, group, CommIdentity::of_world(rank, n)));
  return ranks;
}

void run_ranks(int n, const std::function<void(CommunicatorPtr world)>& fn) {
  std::vector<CommunicatorPtr> world = make_thread_world(n);
  std::mutex mutex;
  std::exception_ptr first;
  int first_rank = -1;
  const auto failed = [&](int rank, const std::string& reason) {
    {
      std::lock_guard lock(mutex);
      if (!first) {
        first = std::current_exception();
        first_rank = rank;
      }
    }
    world[rank]->abort(reason);
  };
  const auto live = [&](int rank) {
    set_current_rank(rank);
    at::set_num_threads(1);
    try {
      fn(world[rank]);
    } catch (const std::exception& error) {
      failed(rank, error.what());
    } catch (...) {
      failed(rank, "an exception that is not a std::exception");
    }
  };
  const int threads_before = at::get_num_threads();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(live, rank);
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(threads_before);
  if (first) rethrow_of_rank(first, first_rank);
}

}  // namespace shardline
