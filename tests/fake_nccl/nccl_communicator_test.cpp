#include "core/comm/nccl/nccl_communicator.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/fake_nccl/device_ranks.h"
#include "tests/fake_nccl/staging_communicator.h"

#include "tests/catch.h"

namespace shardline::nccl_communicator_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;
using testing::failure_of;
using testing::Limits;
using testing::run_on_devices;
using testing::run_over_nccl;
using Texts = std::vector<std::string>;

at::Tensor filled(std::initializer_list<int64_t> sizes, double value, at::ScalarType type = at::kFloat) {
  const int device = c10::impl::VirtualGuardImpl(at::kPrivateUse1).getDevice().index();
  return at::full(sizes, value, at::TensorOptions(type).device(fake::device(device)));
}

double first_of(const at::Tensor& tensor) {
  return on_host(tensor, "a test looks").view(-1)[0].item<double>();
}

void check_nothing_wrong() {
  CHECK(fake::take_faults() == Texts{});
  CHECK(fake::take_nccl_faults() == Texts{});
  CHECK(fake::live_nccl_communicators() == 0);
}

// Returns each rank's error when a job of two ranks fails.
Texts failures_of_two(const std::function<void(CommunicatorPtr control)>& job) {
  Texts texts(2);
  run_on_devices(2, [&](CommunicatorPtr control) { texts[control->rank()] = failure_of([&] { job(control); }); });
  return texts;
}

TEST_CASE("nccl: the communicator suite passes") {
  const Texts of_hosts = {"limits run from the wait",
                          "an expired wait states both times"};  // tests below replace these
  for (const int ranks : {1, 3})
    for (const auto& behaviour : testing::comm_behaviours()) {
      if (std::find(of_hosts.begin(), of_hosts.end(), behaviour.name) != of_hosts.end()) continue;
      CAPTURE(ranks, behaviour.name);
      CHECK_NOTHROW(run_over_nccl(ranks, [&](CommunicatorPtr world, CommunicatorPtr control) {
        testing::StagingCommunicator staged(world, fake::device(control->rank()));
        behaviour.check(staged);
      }));
      check_nothing_wrong();
    }
}

TEST_CASE("nccl: ranks that disagree all fail") {
  const auto mismatches = testing::comm_mismatches();
  for (size_t i = 0; i < mismatches.size(); i += 3) {  // each takes a while
    const auto& mismatch = mismatches[i];
    CAPTURE(mismatch.name);
    const Limits limits(300ms);  // NCCL hangs if a message is paired with a collective
    const Texts texts = failures_of_two([&](CommunicatorPtr control) {
      const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
      testing::StagingCommunicator staged(world, fake::device(control->rank()));
      mismatch.check(staged);
      world->barrier();
    });
    for (const auto& text : texts)
      CHECK_THAT(text, Contains("NCCL result 5") || Contains("NCCL result 6") || Contains("aborted") ||
                           Contains("time limit"));
    check_nothing_wrong();
  }
}

TEST_CASE("nccl: the host continues while a stream waits") {
  run_over_nccl(2, [](CommunicatorPtr world, CommunicatorPtr control) {
    const at::Tensor sum = filled({3}, control->rank() + 1), go = at::zeros({1});
    if (control->rank() == 1) control->recv(go, 0)->wait();
    world->all_reduce(sum)->wait();
    if (control->rank() == 0) control->send(go, 1)->wait();
    EXPECT(first_of(sum.mul(2)) == 6);
  });
  check_nothing_wrong();
}

TEST_CASE("nccl: the time that a stream waits is measured") {
  std::atomic<double> early = 0, late = 0;
  run_over_nccl(2, [&](CommunicatorPtr world, CommunicatorPtr control) {
    const double before = waited_seconds();
    if (control->rank() == 1) std::this_thread::sleep_for(200ms);
    const at::Tensor sum = filled({1}, 1);
    world->all_reduce(sum)->wait();
    first_of(sum);
    (control->rank() == 0 ? early : late) = waited_seconds() - before;
  });
  CHECK(early >= 0.15);
  CHECK(late < 0.1);
}

TEST_CASE("nccl: a result for which nobody waits is detected") {
  run_over_nccl(2, [](CommunicatorPtr world, CommunicatorPtr control) {
    const at::Tensor sum = filled({3}, 1);
    const WorkPtr work = world->all_reduce(sum);
    sum.add_(1);
    work->wait();
    first_of(sum);
  });
  CHECK_THAT(fake::take_faults().at(0), Contains("aten::add_") && Contains("does not wait for it"));
  fake::take_faults();
}

TEST_CASE("nccl: a result for which only another stream waits is detected") {
  run_over_nccl(2, [](CommunicatorPtr world, CommunicatorPtr control) {
    const at::Tensor sum = filled({3}, 1);
    const WorkPtr work = world->all_reduce(sum);
    {
      const c10::StreamGuard elsewhere(
          c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStreamFromGlobalPool(sum.device()));
      work->wait();
    }
    sum.add_(1);
    first_of(sum);
    world->barrier();
  });
  CHECK_THAT(fake::take_faults().at(0), Contains("does not wait for it"));
  fake::take_faults();
}

TEST_CASE("nccl: tensors that the caller drops live as long as their operation") {
  run_over_nccl(2, [](CommunicatorPtr world, CommunicatorPtr control) {
    for (int i = 0; i < 5; ++i) {
      world->all_reduce(filled({1000}, i));
      world->send(filled({1000}, i), 1 - control->rank());
      const at::Tensor message = filled({1000}, -1);
      world->recv(message, 1 - control->rank())->wait();
      EXPECT(first_of(message) == i);
    }
    const WorkPtr last = world->all_reduce(filled({1000}, 1));  // freed once the stream waits
    last->wait();
  });
  check_nothing_wrong();
}

TEST_CASE("nccl: gathers and scatters may be in place") {
  run_over_nccl(3, [](CommunicatorPtr world, CommunicatorPtr control) {
    const at::Tensor whole = filled({3, 4}, 10 + control->rank());
    world->all_gather(whole, whole[control->rank()])->wait();
    for (int r = 0; r < 3; ++r) EXPECT(first_of(whole[r]) == 10 + r);
    const at::Tensor mine = whole[control->rank()];
    world->reduce_scatter(mine, whole)->wait();
    EXPECT(first_of(mine) == 3 * (10 + control->rank()));
  });
  check_nothing_wrong();
}

// ---- calls

TEST_CASE("nccl: each operation is a group, and messages start together") {
  Texts calls;
  run_over_nccl(2, [&](CommunicatorPtr world, CommunicatorPtr control) {
    const int peer = 1 - control->rank();
    fake::take_nccl_calls();
    world->all_to_all(filled({6}, 0), filled({6}, 1))->wait();
    const at::Tensor out = filled({4}, 0), in = filled({4}, 0);
    const WorkPtr sent = world->send(out, peer), received = world->recv(in, peer);
    received->wait();
    world->send(out, peer);  // nobody waits for it, and it is still launched before what follows
    const WorkPtr second = world->recv(in, peer);
    world->broadcast(filled({5}, 0), 1)->wait();
    second->wait();
    while (!sent->poll()) std::this_thread::yield();
    if (control->rank() == 0) calls = fake::take_nccl_calls();
  });
  CHECK(calls == Texts{"group(", "send 3 to 0", "recv 3 from 0", "send 3 to 1", "recv 3 from 1", ")",  //
                       "group(", "send 4 to 1", "recv 4 from 1", ")",                                  //
                       "group(", "send 4 to 1", "recv 4 from 1", ")",                                  //
                       "group(", "broadcast 5 root 1", ")"});
  check_nothing_wrong();
}

TEST_CASE("nccl: groups are split off with colors that NCCL accepts, and everything is finalized") {
  Texts calls;
  run_on_devices(2, [&](CommunicatorPtr control) {
    fake::take_nccl_calls();
    {
      const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
      const CommunicatorPtr alone = world->split(-7 - control->rank(), "tp");
      EXPECT(alone->size() == 1 && alone->rank() == 0 && alone->name() == "tp");
    }
    if (control->rank() == 1) calls = fake::take_nccl_calls();
  });
  CHECK(calls == Texts{"init 1 of 2", "group(", "all_reduce 1", ")", "split color 1 key 1", "finalize", "destroy",
                       "finalize", "destroy"});
  check_nothing_wrong();
}

TEST_CASE("nccl: a message that is never waited for leaves before the communicator ends") {
  run_over_nccl(2, [](CommunicatorPtr world, CommunicatorPtr control) {
    const int peer = 1 - control->rank();
    world->send(filled({4}, 5), peer);
    const at::Tensor in = filled({4}, 0);
    if (control->rank() == 0) world->recv(in, peer)->wait();
    if (control->rank() == 1) world->recv(in, peer);
  });
  check_nothing_wrong();
}

// It is not documented whether NCCL itself waits, so programs must end the groups of all ranks in the same order.
TEST_CASE("nccl: a group ends once all of its ranks end it") {
  std::atomic<bool> ends = false;
  run_over_nccl(2, [&](CommunicatorPtr world, CommunicatorPtr control) {
    CommunicatorPtr tp = world->split(0, "tp");
    if (control->rank() == 1) {
      std::this_thread::sleep_for(50ms);
      ends = true;
    }
    tp.reset();
    EXPECT(ends);
  });
  check_nothing_wrong();
}

TEST_CASE("nccl: asking whether a message is done starts it and does not wait for the connection") {
  run_over_nccl(2, [](CommunicatorPtr world, CommunicatorPtr control) {
    const at::Tensor first = filled({4}, 1), second = filled({5}, 2), go = at::zeros({1});
    if (control->rank() == 0) {
      const WorkPtr received = world->recv(first, 1), later = world->recv(second, 1);
      EXPECT(!received->poll());
      EXPECT(!later->poll());
      control->send(go, 1)->wait();
      received->wait();
      later->wait();
      EXPECT(first_of(first) == 7 && first_of(second) == 8);
    } else {
      control->recv(go, 0)->wait();
      world->send(filled({4}, 7), 0);
      world->send(filled({5}, 8), 0)->wait();
    }
  });
  check_nothing_wrong();
}

// ---- failures

TEST_CASE("nccl: a connection that is not established in time is given up") {
  const Limits limits(5s, 100ms);
  std::string text;
  run_on_devices(2, [&](CommunicatorPtr control) {
    if (control->rank() == 0)
      text = failure_of([&] { make_nccl_world(control, 0, fake::nccl()); });
    else {  // takes part in what the host decides, then returns
      gather_to_all(*control, at::full({1}, 22809, at::kLong));
      control->broadcast(at::zeros({1 + static_cast<int64_t>(sizeof(NcclId))}, at::kByte), 0)->wait();
    }
  });
  CHECK_THAT(text, Contains("rank 0 on host") && Contains("of 2 ranks could not be created") &&
                       Contains("limit 0.1 s") && Contains("NCCL 2.28.9"));
  check_nothing_wrong();
}

TEST_CASE("nccl: without a unique id no rank starts") {
  const Texts texts = failures_of_two([](CommunicatorPtr control) {
    fake::nccl_trouble().unique_id_result = 2;
    make_nccl_world(control, control->rank(), fake::nccl());
  });
  for (const auto& text : texts)
    CHECK_THAT(text, Contains("cannot create a unique id on rank 0: a system call failed"));
}

TEST_CASE("nccl: a communicator that NCCL does not begin to make is refused for NCCL's reason") {
  const Texts texts = failures_of_two([](CommunicatorPtr control) {
    fake::nccl_trouble().init_result = 2;
    make_nccl_world(control, control->rank(), fake::nccl());
  });
  for (const auto& text : texts)
    CHECK_THAT(text, Contains("the NCCL group world of 2 ranks could not be created") &&
                         Contains("a system call failed") && Contains("NCCL result 2: the last error of the process"));
  check_nothing_wrong();
}

TEST_CASE("nccl: different or old versions are refused") {
  const Texts texts = failures_of_two([](CommunicatorPtr control) {
    fake::nccl_trouble().version = control->rank() == 0 ? 22809 : 22105;
    make_nccl_world(control, control->rank(), fake::nccl());
  });
  for (const auto& text : texts) CHECK_THAT(text, Contains("rank 0 has 2.28.9, rank 1 has 2.21.5"));
  CHECK_THROWS_WITH(run_on_devices(1,
                                   [](CommunicatorPtr control) {
                                     fake::nccl_trouble().version = 21805;
                                     make_nccl_world(control, 0, fake::nccl());
                                   }),
                    Contains("was compiled for NCCL 2.28.9, but the system loads the older 2.18.5"));
}

TEST_CASE("nccl: every group has its own stream, and more groups than streams are refused") {
  const auto job = [](CommunicatorPtr world, CommunicatorPtr) {
    constexpr int kMost = 32;
    for (int i = 0; i < 2 * kMost; ++i) world->split(0, "short-lived");
    std::vector<CommunicatorPtr> groups = {world};
    while (groups.size() < kMost) groups.push_back(world->split(0, "tp"));
    world->split(0, "one more");
  };
  CHECK_THROWS_WITH(run_over_nccl(1, job), Contains("rank 0 is in more than 32 NCCL groups"));
  check_nothing_wrong();
}

TEST_CASE("nccl: two ranks on one device are refused, and so is a device that is not current") {
  Texts texts(2);
  run_ranks(2, [&](CommunicatorPtr control) {
    texts[control->rank()] = failure_of([&] { make_nccl_world(control, 0, fake::nccl()); });
  });
  for (const auto& text : texts)
    CHECK_THAT(text, Contains("two ranks on one GPU") && Contains("Duplicate GPU detected"));
  check_nothing_wrong();
  CHECK_THROWS_WITH(run_ranks(1, [](CommunicatorPtr control) { make_nccl_world(control, 2, fake::nccl()); }),
                    Contains("the thread's current device"));
}

TEST_CASE("nccl: an error ends the job even if the stream waits and the host does something else") {
  const Texts texts = failures_of_two([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
    const CommunicatorPtr tp = world->split(0, "tp");
    const at::Tensor tensor = filled({2, 2}, 1, at::kBFloat16);
    const at::Tensor never = at::zeros({1});
    if (control->rank() == 0) {
      wait_for_device(tensor.device(), "the new group is connected");  // else it could be the operation that fails
      tp->all_reduce(tensor, {.what = "dX layer 3"})->wait();
      fake::break_nccl(2, "NET/Socket : connection closed");
      on_host(tensor, "a test looks");  // returns, because NCCL is aborted
      world->barrier();
    } else {
      control->recv(never, 0)->wait();
    }
  });
  CHECK_THAT(texts[0], Contains("all_reduce number 1 of bfloat16 [2, 2] in group tp") && Contains("dX layer 3") &&
                           Contains("a system call failed") &&
                           Contains("NCCL result 2: NET/Socket : connection closed") && Contains("[NCCL 2.28.9]"));
  CHECK_THAT(texts[1], Contains("rank 0 aborted") && Contains("NCCL result 2"));
  check_nothing_wrong();
}

// An NCCL that reports an error only once, to the first thread that asks and is not the rank's own.
std::thread::id asking_rank;
std::atomic<bool> error_is_reported;

int state_with_error(void* comm, int* state) {
  const int result = fake::nccl().async_error(comm, state);
  if (std::this_thread::get_id() != asking_rank && !error_is_reported.exchange(true)) *state = 2;
  return result;
}

// The operation runs at once, because there is one rank; but the first query of the event at its end is too early, as
// on the device without hardware, and the second is not.
TEST_CASE("nccl: an operation that ends while the state of its communicator is asked for is not blamed for an error") {
  static const NcclApi api = [] {
    NcclApi table = fake::nccl();
    table.async_error = state_with_error;
    return table;
  }();
  error_is_reported = false;
  run_on_devices(1, [](CommunicatorPtr control) {
    asking_rank = std::this_thread::get_id();
    const CommunicatorPtr world = make_nccl_world(control, 0, api);
    const at::Tensor tensor = filled({3}, 1);
    world->all_reduce(tensor, {.what = "dX layer 3"})->wait();
    while (!error_is_reported) std::this_thread::sleep_for(1ms);
    world->barrier();
    EXPECT(first_of(tensor) == 1);
  });
  check_nothing_wrong();
}

TEST_CASE("nccl: an error of the call itself closes the group and aborts") {
  const Texts texts = failures_of_two([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
    fake::nccl_trouble().send_result = 4;
    const WorkPtr sent = world->send(filled({4}, 0), 1 - control->rank());
    EXPECT(!failure_of([&] { world->recv(filled({4}, 0), 1 - control->rank())->wait(); }).empty());
    sent->wait();
  });
  for (const auto& text : texts) CHECK_THAT(text, Contains("invalid argument") || Contains("a remote rank failed"));
  check_nothing_wrong();
}

TEST_CASE("nccl: a time limit starts when the stream begins to wait, and ends the job") {
  Texts texts = failures_of_two([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
    const int peer = 1 - control->rank();
    const at::Tensor message = filled({3}, 1);
    (control->rank() == 0 ? world->send(message, peer) : world->recv(message, peer))->wait();  // connects
    world->barrier();
    if (control->rank() == 0) {
      // Posted long before it is needed.
      const WorkPtr early = world->recv(message, 1, {.timeout = 150ms});
      early->poll();
      std::this_thread::sleep_for(300ms);
      control->barrier();
      early->wait();
      first_of(message);
      const WorkPtr late = world->recv(message, 1, {.what = "recv_gradient", .timeout = 100ms});
      late->wait();
      const at::Tensor seen = message.add(1);  // the device waits
      world->barrier();
    } else {
      control->barrier();
      world->send(message, 0)->wait();
      control->barrier();
    }
  });
  CHECK_THAT(texts[0], Contains("recv number 1 of float32 [3] from rank 1") && Contains("(for recv_gradient)") &&
                           Contains("(limit 0.1 s)") && Contains("the time limit has passed"));
  CHECK_THAT(texts[1], Contains("rank 0 aborted") && Contains("recv_gradient"));
  check_nothing_wrong();
}

TEST_CASE("nccl: an operation that the other ranks never join ends at the time limit") {
  const Limits limits(200ms);
  const Texts texts = failures_of_two([](CommunicatorPtr control) {
    const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
    fake::nccl_trouble().stays_away = control->rank() == 1;
    const at::Tensor message = filled({3}, 1);
    if (control->rank() == 0) world->recv(message, 1)->wait();
    control->barrier({.timeout = 300ms});
  });
  CHECK_THAT(texts[0], Contains("recv number 0") && Contains("NCCL was still busy when the time limit expired"));
}

TEST_CASE("nccl: a rank that ends with an exception aborts instead of waiting for its peers") {
  CHECK_THROWS_AS(run_over_nccl(2,
                                [](CommunicatorPtr world, CommunicatorPtr control) {
                                  if (control->rank() == 0) throw DataError("no label");
                                  const at::Tensor sum = filled({3}, 1);
                                  world->all_reduce(sum)->wait();
                                  first_of(sum);
                                  world->barrier();
                                }),
                  DataError);
  check_nothing_wrong();
}

TEST_CASE("nccl: a rank that ends with an exception while one of its groups receives reports the reason immediately") {
  const auto job = [](CommunicatorPtr world, CommunicatorPtr control) {
    const CommunicatorPtr pp = world->split(0, "pp");
    const at::Tensor message = filled({3}, 1);
    (control->rank() == 0 ? pp->recv(message, 1) : pp->send(message, 0))->wait();  // connects
    world->barrier();
    if (control->rank() == 0) {
      pp->recv(message, 1)->poll();
      throw DataError("no label");
    }
    control->barrier();
  };
  CHECK_THROWS_WITH(run_over_nccl(2, job), "rank 0: no label");
  check_nothing_wrong();
}

TEST_CASE("nccl: an error of the device fails the world where nothing may throw: in polls and at the end of a group") {
  for (const bool at_end : {false, true}) {
    CAPTURE(at_end);
    const Texts texts = failures_of_two([&](CommunicatorPtr control) {
      const CommunicatorPtr world = make_nccl_world(control, control->rank(), fake::nccl());
      CommunicatorPtr pp = world->split(0, "pp");
      if (control->rank() == 0) {
        WorkPtr received = pp->recv(filled({3}, 0), 1);
        std::this_thread::sleep_for(100ms);  // the watching thread has nothing to query
        fake::break_device(fake::device(0), "an illegal memory access was encountered");
        if (at_end) {
          received.reset();
          pp.reset();
        } else {
          EXPECT(received->poll());
          received->wait();
        }
      }
      world->barrier();
    });
    fake::break_device(fake::device(0), "");
    CHECK_THAT(texts[0], Contains("rank 0 on host") && Contains("an illegal memory access was encountered"));
    CHECK_THAT(texts[1], Contains("a remote rank failed"));
    check_nothing_wrong();
  }
}

// An NCCL for one rank, with a device on which the end of a group's last operation comes only after a failure, which
// occurs once NCCL has ended the group.
struct LateEnd : fake::Outside {
  std::atomic<bool> has_come = false;
  std::optional<std::chrono::steady_clock::time_point> ended() override {
    if (!has_come) return std::nullopt;
    return std::chrono::steady_clock::now();
  }
};
struct FailureAtEnd {
  std::shared_ptr<LateEnd> late_end;  // null: operations end in time
  void *stream = nullptr, *ending = nullptr;
  std::thread::id rank;
  CommunicatorPtr world;
  std::thread fails;
};
FailureAtEnd at_end;

NcclApi failing_at_end() {
  NcclApi api = fake::nccl();
  api.all_reduce = [](const void* from, void* to, size_t count, NcclType type, bool max, void* comm, void* stream) {
    at_end.stream = stream;
    return fake::nccl().all_reduce(from, to, count, type, max, comm, stream);
  };
  api.group_end = [] {
    const int result = fake::nccl().group_end();
    if (void* const handle = std::exchange(at_end.stream, nullptr); handle && at_end.late_end) {
      const auto id = static_cast<c10::StreamId>(reinterpret_cast<uintptr_t>(handle));
      fake::launch("late end", c10::Stream(c10::Stream::UNSAFE, fake::device(0), id), {}, at_end.late_end);
    }
    return result;
  };
  api.finalize = [](void* comm) { return fake::nccl().finalize(at_end.ending = comm); };
  api.async_error = [](void* comm, int* state) {
    const int result = fake::nccl().async_error(comm, state);
    if (std::this_thread::get_id() == at_end.rank && comm == at_end.ending && *state == kNcclSuccess) {
      at_end.ending = nullptr;
      at_end.fails = std::thread([] { at_end.world->abort("a test"); });
    }
    return result;
  };
  api.abort = [](void* comm) {
    const int result = fake::nccl().abort(comm);
    at_end.late_end->has_come = true;
    return result;
  };
  return api;
}

TEST_CASE("nccl: a group that is aborted as it ends is not freed again") {
  static const NcclApi api = failing_at_end();
  run_on_devices(1, [](CommunicatorPtr control) {
    at_end.rank = std::this_thread::get_id();
    at_end.world = make_nccl_world(control, 0, api);
    CommunicatorPtr group = at_end.world->split(0, "tp");
    at_end.late_end = std::make_shared<LateEnd>();
    group->all_reduce(filled({3}, 1));
    group.reset();
    at_end.fails.join();
    at_end.world.reset();
  });
  check_nothing_wrong();
}

TEST_CASE("nccl: tensors of another device are refused") {
  run_over_nccl(1, [](CommunicatorPtr world, CommunicatorPtr control) {
    std::string text;
    try {
      world->all_gather(at::zeros({3}), at::zeros({3}), {.what = "gather values"});
    } catch (const InvariantError& error) {
      text = error.what();
    }
    EXPECT(text.find("all_gather in group world (for gather values): rank 0's NCCL communicators carry tensors on") !=
               std::string::npos,
           text);
  });
  check_nothing_wrong();
}

}  // namespace
}  // namespace shardline::nccl_communicator_test
