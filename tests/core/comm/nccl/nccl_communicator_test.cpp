// No machine of ours has two GPUs: what is tested is the order of the calls and every way to fail, against a stub that
// records calls and moves nothing. Each rank is a thread with a stub of its own.
#include "core/comm/nccl/nccl_communicator.h"

#include <ATen/ops/zeros.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "tests/core/comm/communicator_suite.h"

#include "tests/catch.h"

namespace shardline::nccl_communicator_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using Calls = std::vector<std::string>;

struct Stub {
  Calls calls;
  int busy = 0;   // this many answers "in progress" before the state
  int state = 0;  // what async_error finds
  bool events_done = true;
  int event_questions = -1;  // until events are done; -1: for good
  int unique_id_result = 0, send_result = 0;
  int64_t next_handle = 1;

  void* handle() { return reinterpret_cast<void*>(next_handle++); }
  // The calls since the last question, without the polling.
  Calls take() { return std::exchange(calls, {}); }
};
thread_local Stub stub;

std::string number(void* handle) {
  return std::to_string(reinterpret_cast<int64_t>(handle));
}
int note(const std::string& call) {
  stub.calls.push_back(call);
  return kNcclSuccess;
}

const NcclApi& stub_api() {
  static const NcclApi api = [] {
    NcclApi table{};
    table.device_type = c10::DeviceType::CPU;
    table.get_version = [](int* version) { return *version = 22809, 0; };
    table.get_unique_id = [](NcclId* id) {
      id->fill('x');
      return note("unique_id"), stub.unique_id_result;
    };
    table.init_rank = [](void** comm, int size, const NcclId* id, int rank) {
      *comm = stub.handle();
      note(cat("init ", rank, " of ", size, " ", id->front(), " -> ", number(*comm)));
      return static_cast<int>(kNcclInProgress);
    };
    table.split = [](void* comm, int color, int key, void** part) {
      *part = stub.handle();
      note(cat("split ", number(comm), " color ", color, " key ", key, " -> ", number(*part)));
      return static_cast<int>(kNcclInProgress);
    };
    table.async_error = [](void*, int* state) {
      *state = stub.busy > 0 ? static_cast<int>(kNcclInProgress) : stub.state;
      if (stub.busy > 0) --stub.busy;
      return 0;
    };
    table.last_error = [](void*) { return "NET/Socket : connection closed"; };
    table.finalize = [](void* comm) { return note("finalize " + number(comm)), static_cast<int>(kNcclInProgress); };
    table.destroy = [](void* comm) { return note("destroy " + number(comm)); };
    table.abort = [](void* comm) { return note("abort " + number(comm)); };
    table.group_start = [] { return note("group("); };
    table.group_end = [] { return note(")"), static_cast<int>(kNcclInProgress); };
    table.all_reduce = [](const void*, void*, size_t n, NcclType, bool max, void*, void*) {
      return note(cat("all_reduce ", n, max ? " max" : ""));
    };
    table.reduce_scatter = [](const void*, void*, size_t n, NcclType, bool, void*, void*) {
      return note(cat("reduce_scatter ", n));
    };
    table.all_gather = [](const void*, void*, size_t n, NcclType, void*, void*) { return note(cat("all_gather ", n)); };
    table.broadcast = [](const void*, void*, size_t n, NcclType, int root, void*, void*) {
      return note(cat("broadcast ", n, " root ", root));
    };
    table.send = [](const void*, size_t n, NcclType, int peer, void*, void*) {
      return note(cat("send ", n, " to ", peer)), stub.send_result;
    };
    table.recv = [](void*, size_t n, NcclType, int peer, void*, void*) {
      return note(cat("recv ", n, " from ", peer));
    };
    table.make_stream = [](int device) {
      note(cat("stream on ", device));
      return static_cast<void*>(nullptr);
    };
    table.free_stream = [](void*) { note("free stream"); };
    table.wait_for_current = [](void*, int) { note("after current"); };
    table.record_event = [](void*) {
      note("event");
      return stub.handle();
    };
    table.event_done = [](void*) {
      if (stub.event_questions > 0 && --stub.event_questions == 0) stub.events_done = true;
      return stub.events_done;
    };
    table.current_waits_for = [](void*, int) {};
    table.free_event = [](void*) {};
    return table;
  }();
  return api;
}

// Runs `job` on two ranks and gives back rank 0's calls since its last take(), after everything is destroyed.
Calls calls_of_two_ranks(const std::function<void(CommunicatorPtr)>& job) {
  Calls calls;
  run_ranks(2, [&](CommunicatorPtr control) {
    stub = Stub{};
    job(control);
    if (control->rank() == 0) calls = stub.take();
  });
  return calls;
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "no DistributedError";
}

struct ShortLimits {
  Timeouts before = timeouts();
  ShortLimits() { set_timeouts({50ms, 50ms, 50ms}); }
  ~ShortLimits() { set_timeouts(before); }
};

TEST_CASE("nccl: starts without blocking, ends by finalize and then destroy") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    stub.busy = 3;
    const CommunicatorPtr world = make_nccl_world(control, 5, stub_api());
    EXPECT(stub.busy == 0);
    EXPECT(world->size() == 2 && world->rank() == control->rank());
    stub.busy = 2;
  });
  CHECK(calls == Calls{"unique_id", "init 0 of 2 x -> 1", "stream on 5", "finalize 1", "destroy 1", "free stream"});
}

TEST_CASE("nccl: collectives wait for the caller's stream and are complete before their event") {
  const at::Tensor ten = at::zeros({10}, at::kFloat), five = at::zeros({5}, at::kFloat);
  Calls calls;
  calls_of_two_ranks([&](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    stub.busy = 2;  // the group's launch goes on in the background
    world->all_reduce(ten, {.op = ReduceOp::max})->wait();
    EXPECT(stub.busy == 0);
    world->reduce_scatter(five, ten)->wait();
    world->all_gather(ten, five)->wait();
    world->broadcast(ten, 1)->wait();
    world->barrier();
    if (control->rank() == 0) calls = stub.take();
  });
  Calls expected;
  for (const char* op :
       {"all_reduce 10 max", "reduce_scatter 5", "all_gather 5", "broadcast 10 root 1", "all_reduce 1"})
    for (const char* call : {"after current", "group(", op, ")", "event"}) expected.push_back(call);
  CHECK(calls == expected);
}

TEST_CASE("nccl: all_to_all is one group of sends and receives") {
  Calls calls;
  calls_of_two_ranks([&](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    world->all_to_all(at::zeros({6}, at::kLong), at::zeros({6}, at::kLong))->wait();
    if (control->rank() == 0) calls = stub.take();
  });
  CHECK(calls ==
        Calls{"after current", "group(", "send 3 to 0", "recv 3 from 0", "send 3 to 1", "recv 3 from 1", ")", "event"});
}

TEST_CASE("nccl: neighbours that both send first are grouped, so they cannot block each other") {
  Calls calls;
  calls_of_two_ranks([&](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    const at::Tensor out = at::zeros({4}, at::kFloat), in = at::zeros({4}, at::kFloat);
    const int peer = 1 - control->rank();
    const WorkPtr sent = world->send(out, peer), received = world->recv(in, peer);
    EXPECT(stub.calls.empty());
    received->wait();
    EXPECT(sent->poll());
    world->send(out, peer);  // dropped, and still launched before what follows
    world->barrier();
    world->send(out, peer);  // dropped, and launched at the end
    if (control->rank() == 0) calls = stub.take();
  });
  CHECK(calls == Calls{"after current", "group(", "send 4 to 1", "recv 4 from 1", ")", "event",  //
                       "after current", "group(", "send 4 to 1", ")", "event",                   //
                       "after current", "group(", "all_reduce 1", ")", "event"});
}

TEST_CASE("nccl: a message never waited for leaves before the communicator ends") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    world->send(at::zeros({4}, at::kFloat), 1 - control->rank());
    stub.take();
  });
  CHECK(calls ==
        Calls{"after current", "group(", "send 4 to 1", ")", "event", "finalize 1", "destroy 1", "free stream"});
}

TEST_CASE("nccl: groups are split off with colors that NCCL accepts") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    const CommunicatorPtr alone = world->split(-7 - control->rank(), "tp");
    EXPECT(alone->size() == 1 && alone->rank() == 0 && alone->name() == "tp");
    EXPECT(stub.calls.front() == cat("split 1 color ", control->rank(), " key ", control->rank(), " -> 2"));
    stub.take();
  });
  CHECK(calls == Calls{"finalize 2", "destroy 2", "free stream", "finalize 1", "destroy 1", "free stream"});
}

TEST_CASE("nccl: a start that does not come is given up and aborted") {
  const ShortLimits limits;
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    stub.busy = 1 << 30;
    const std::string text = message_of([&] { make_nccl_world(control, 0, stub_api()); });
    for (const char* part : {"on host", "of 2 ranks could not be made within 0.05 s", "NCCL 2.28.9"})
      EXPECT(text.find(part) != std::string::npos, text);
  });
  CHECK(calls == Calls{"unique_id", "init 0 of 2 x -> 1", "abort 1"});
}

TEST_CASE("nccl: without a unique id no rank starts") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    stub.unique_id_result = 2;
    const std::string text = message_of([&] { make_nccl_world(control, 0, stub_api()); });
    EXPECT(text.find("cannot create a unique id on rank 0: a system call failed") != std::string::npos, text);
  });
  CHECK(calls == Calls{"unique_id"});
}

TEST_CASE("nccl: an error found while waiting aborts all communicators of the world, once") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    const CommunicatorPtr tp = world->split(0, "tp");
    stub.take();
    stub.events_done = false;
    const at::Tensor tensor = at::zeros({2, 2}, at::kBFloat16);
    const WorkPtr work = tp->all_reduce(tensor, {.what = "dX layer 3"});
    EXPECT(!work->poll());
    stub.state = 6;
    const std::string text = message_of([&] { work->wait(); });
    for (const char* part : {"all_reduce number 0 of bfloat16 [2, 2] in group tp", "dX layer 3", "a remote rank failed",
                             "NCCL result 6: NET/Socket : connection closed", "[NCCL 2.28.9]"})
      EXPECT(text.find(part) != std::string::npos, text);
    const std::string later = message_of([&] { world->barrier(); });
    EXPECT(later.find("a remote rank failed") != std::string::npos, later);
    EXPECT(message_of([&] { world->send(tensor, 0); }).find("a remote rank failed") != std::string::npos);
  });
  CHECK(calls == Calls{"after current", "group(", "all_reduce 4", ")", "event", "abort 1", "abort 2", "free stream",
                       "free stream"});
}

TEST_CASE("nccl: an error of the call itself closes the group and aborts") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    stub.send_result = 4;
    const at::Tensor tensor = at::zeros({4}, at::kFloat);
    const WorkPtr sent = world->send(tensor, 1 - control->rank());
    const std::string text = message_of([&] { world->recv(tensor, 1 - control->rank())->wait(); });
    EXPECT(text.find("invalid argument") != std::string::npos, text);
    EXPECT(message_of([&] { sent->wait(); }).find("invalid argument") != std::string::npos);
  });
  CHECK(calls == Calls{"after current", "group(", "send 4 to 1", ")", "abort 1", "free stream"});
}

TEST_CASE("nccl: a wait has a limit, and then everything is aborted") {
  const Calls calls = calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    stub.events_done = false;
    const WorkPtr work = world->all_reduce(at::zeros({3}, at::kFloat), {.timeout = 30ms});
    const std::string text = message_of([&] { work->wait(); });
    EXPECT(text.find("the time limit has passed") != std::string::npos, text);
  });
  CHECK(calls == Calls{"after current", "group(", "all_reduce 3", ")", "event", "abort 1", "free stream"});
}

TEST_CASE("nccl: a limit runs from the wait") {
  calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.events_done = false;
    const WorkPtr work = world->all_reduce(at::zeros({3}, at::kFloat), {.timeout = 200ms});
    std::this_thread::sleep_for(300ms);
    stub.event_questions = 5;
    work->wait();
  });
}

// A first message to a peer makes the connection in the background, for which NCCL needs the peer.
TEST_CASE("nccl: asking whether a message is done starts it and does not wait for the connection") {
  Calls calls;
  calls_of_two_ranks([&](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.take();
    stub.busy = 1 << 30;
    const WorkPtr first = world->recv(at::zeros({4}, at::kFloat), 1 - control->rank());
    const WorkPtr second = world->recv(at::zeros({5}, at::kFloat), 1 - control->rank());
    EXPECT(!first->poll());
    EXPECT(!second->poll());
    EXPECT(stub.calls.back() == ")");
    stub.busy = 0;
    EXPECT(first->poll());
    second->wait();
    stub.busy = 3;
    world->barrier();  // one launch at a time
    if (control->rank() == 0) calls = stub.take();
  });
  CHECK(calls == Calls{"after current", "group(", "recv 4 from 1", "recv 5 from 1", ")", "event",  //
                       "after current", "group(", "all_reduce 1", ")", "event"});
}

TEST_CASE("nccl: an operation whose world has failed is done, and says so in wait") {
  calls_of_two_ranks([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    stub.events_done = false;
    const WorkPtr reduced = world->all_reduce(at::zeros({3}, at::kFloat));
    const WorkPtr message = world->recv(at::zeros({4}, at::kFloat), 1 - control->rank());
    EXPECT(!reduced->poll());
    EXPECT(!message->poll());
    stub.state = 6;
    EXPECT(reduced->poll());
    EXPECT(message->poll());
    for (const WorkPtr& work : {reduced, message})
      EXPECT(message_of([&] { work->wait(); }).find("a remote rank failed") != std::string::npos);
  });
}

TEST_CASE("nccl: a rank that leaves by an exception aborts instead of waiting for its peers") {
  std::mutex mutex;
  std::vector<Calls> calls;
  CHECK_THROWS_AS(run_ranks(2,
                            [&](CommunicatorPtr control) {
                              stub = Stub{};
                              try {
                                const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
                                stub.take();
                                throw DataError("no label");
                              } catch (const DataError&) {
                                std::lock_guard lock(mutex);
                                calls.push_back(stub.take());
                                throw;
                              }
                            }),
                  DataError);
  REQUIRE(!calls.empty());
  CHECK(calls[0] == Calls{"abort 1", "free stream"});
}

TEST_CASE("nccl: tensors of another device are refused") {
  run_ranks(1, [](CommunicatorPtr control) {
    stub = Stub{};
    const CommunicatorPtr world = make_nccl_world(control, 0, stub_api());
    bool refused = false;
    try {
      world->all_reduce(at::zeros({3}, at::TensorOptions(at::kFloat).device(at::kMeta)));
    } catch (const InvariantError&) {
      refused = true;
    }
    EXPECT(refused);
  });
}

}  // namespace
}  // namespace shardline::nccl_communicator_test
