#include "core/comm/threads_communicator.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <thread>

#include "core/comm/fake_communicator.h"
#include "core/comm/local_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "tests/core/comm/communicator_suite.h"

#include "tests/catch.h"

namespace shardline::threads_communicator_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

template <class Exception>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing of this type was thrown";
}

TEST_CASE("threads: the communicator suite passes") {
  const int n = GENERATE(1, 2, 3, 4, 8);
  for (const auto& behaviour : testing::comm_behaviours()) {
    INFO(behaviour.name << " with " << n << " ranks");
    CHECK_NOTHROW(run_ranks(n, [&](CommunicatorPtr world) { behaviour.check(*world); }));
  }
}

TEST_CASE("local: the communicator suite passes") {
  const CommunicatorPtr world = make_local_world();
  for (const auto& behaviour : testing::comm_behaviours()) {
    INFO(behaviour.name);
    CHECK_NOTHROW(behaviour.check(*world));
  }
}

TEST_CASE(
    "local: a rank's messages to itself arrive in order, and waiting for a missing one is an error instead of a hang") {
  const CommunicatorPtr world = make_local_world();
  const at::Tensor box = at::zeros({2}, at::kFloat);
  CHECK_THROWS_AS(world->recv(box, 0), DistributedError);
  for (const int value : {4, 5}) world->send(at::full({2}, value, at::kFloat), 0)->wait();
  world->recv(box, 0)->wait();
  CHECK(box.const_data_ptr<float>()[1] == 4);
  CHECK_THROWS_AS(world->recv(at::zeros({3}, at::kFloat), 0), DistributedError);
}

TEST_CASE("threads: a sent tensor may be changed as soon as the send is done") {
  run_ranks(2, [](CommunicatorPtr world) {
    const at::Tensor tensor = at::full({1000}, 3, at::kFloat);
    if (world->rank() == 0) {
      world->send(tensor, 1)->wait();
      tensor.fill_(9);
      world->barrier();
    } else {
      world->barrier();
      tensor.zero_();
      world->recv(tensor, 0)->wait();
      EXPECT(tensor.const_data_ptr<float>()[999] == 3);
    }
  });
}

TEST_CASE("threads: each rank knows its number and computes on one thread") {
  const int before = at::get_num_threads();
  run_ranks(3, [](CommunicatorPtr world) {
    EXPECT(current_rank() == world->rank());
    EXPECT(at::get_num_threads() == 1);
  });
  CHECK(at::get_num_threads() == before);
  CHECK(current_rank() == -1);
}

TEST_CASE("threads: one rank's exception ends the others wherever they wait, and keeps its type") {
  std::vector<std::string> ends(4);
  const auto job = [&](CommunicatorPtr world) {
    const auto pair = world->split(world->rank() / 2, "pair");
    if (world->rank() == 2) {
      std::this_thread::sleep_for(20ms);
      throw DataError("row 7 of train.csv has no label");
    }
    const at::Tensor tensor = at::zeros({4}, at::kFloat);
    ends[world->rank()] = message_of<DistributedError>([&] {
      if (world->rank() == 3) pair->all_reduce(tensor, {.what = "gradients"})->wait();
      if (world->rank() == 1) world->recv(tensor, 0)->wait();
      if (world->rank() == 0) world->barrier();
    });
    throw DistributedError(ends[world->rank()]);
  };
  const std::string text = message_of<DataError>([&] { run_ranks(4, job); });
  CHECK(text == "rank 2: row 7 of train.csv has no label");
  for (const int rank : {0, 1, 3}) CHECK_THAT(ends[rank], Contains("rank 2 aborted: row 7 of train.csv"));
  CHECK_THAT(ends[3], Contains("rank 3 on host") && Contains("group pair") && Contains("(for gradients)"));
  CHECK_THAT(ends[1], Contains("recv number 0 of float32 [4] from rank 0"));
}

TEST_CASE("threads: an operation of a failed world counts as done, and its wait throws the error") {
  run_ranks(2, [](CommunicatorPtr world) {
    const at::Tensor tensor = at::zeros({4}, at::kFloat);
    if (world->rank() == 1) {
      const WorkPtr work = world->recv(tensor, 0);
      EXPECT(!work->poll());
      world->abort("enough");
      EXPECT(work->poll());
      EXPECT(message_of<DistributedError>([&] { work->wait(); }).find("rank 1 aborted: enough") != std::string::npos);
    }
  });
}

TEST_CASE("threads: an aborted world refuses new operations") {
  run_ranks(2, [](CommunicatorPtr world) {
    if (world->rank() == 0) world->abort("enough");
    const std::string text = message_of<DistributedError>([&] { world->barrier(); });
    EXPECT(text.find("rank 0 aborted: enough") != std::string::npos, text);
  });
}

TEST_CASE("threads: mismatched operations are an error on every rank") {
  const int n = GENERATE(2, 3);
  for (const auto& mismatch : testing::comm_mismatches()) {
    INFO(mismatch.name << " with " << n << " ranks");
    std::vector<std::string> texts(n);
    run_ranks(
        n, [&](CommunicatorPtr world) { texts[world->rank()] = testing::failure_of([&] { mismatch.check(*world); }); });
    for (const std::string& text : texts) CHECK_THAT(text, Contains("disagree"));
  }
}

TEST_CASE("threads: every rank names the mismatch") {
  const auto mismatch = [](const std::function<void(Communicator&, const at::Tensor&)>& job) {
    std::vector<std::string> texts(3);
    CHECK_THROWS_AS(run_ranks(3,
                              [&](CommunicatorPtr world) {
                                texts[world->rank()] =
                                    message_of<DistributedError>([&] { job(*world, at::zeros({6}, at::kFloat)); });
                                throw DistributedError("over");
                              }),
                    DistributedError);
    return texts;
  };
  SECTION("kind") {
    for (const std::string& text : mismatch([](Communicator&world, const at::Tensor&six) {
           if (world.rank() == 1)
             world.broadcast(six, 0, {.what = "weights"})->wait();
           else
             world.all_reduce(six, {.what = "norm"})->wait();
         }))
      CHECK_THAT(text, Contains("all_reduce(sum) number 0 of float32 x 6") && Contains("(for weights)") &&
                           Contains("broadcast from root 0 number 0 of float32 x 6") && Contains("(for norm)"));
  }
  SECTION("size") {
    for (const std::string& text : mismatch([](Communicator&world, const at::Tensor&six) {
           world.all_reduce(world.rank() == 2 ? six.narrow(0, 0, 5) : six)->wait();
         }))
      CHECK_THAT(text, Contains("float32 x 5") && Contains("float32 x 6"));
  }
  SECTION("dtype") {
    for (const std::string& text : mismatch([](Communicator&world, const at::Tensor&six) {
           world.all_reduce(world.rank() == 0 ? six.to(at::kDouble) : six)->wait();
         }))
      CHECK_THAT(text, Contains("float64 x 6") && Contains("float32 x 6"));
  }
  SECTION("message size") {
    for (const std::string& text : mismatch([](Communicator&world, const at::Tensor&six) {
           if (world.rank() == 0) world.send(six, 1)->wait();
           if (world.rank() == 1) world.recv(six.narrow(0, 0, 2), 0)->wait();
           world.barrier();
         }))
      CHECK_THAT(text, Contains("message number 0 of float32 x 6") && Contains("float32 x 2"));
  }
}

TEST_CASE("threads: an expired wait states which rank waited for what, how long and with which limit") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = message_of<DistributedError>([] {
    run_ranks(2, [](CommunicatorPtr world) {
      const at::Tensor tensor = at::zeros({2, 3}, at::kBFloat16);
      if (world->rank() == 1) world->recv(tensor, 0, {.what = "RecvActivation mb 3", .timeout = 100ms})->wait();
    });
  });
  CHECK_THAT(text, Contains("rank 1 on host") && Contains("recv number 0 of bfloat16 [2, 3] from rank 0") &&
                       Contains("in group world of 2 ranks") && Contains("RecvActivation mb 3") &&
                       Contains("after a wait of 0.1 s (limit 0.1 s)"));
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
}

TEST_CASE("threads: the time limit of an operation is that of its kind") {
  const Timeouts before = timeouts();
  Timeouts table = before;
  table.collective = 50ms;
  set_timeouts(table);
  const std::string text = message_of<DistributedError>([] {
    run_ranks(2, [](CommunicatorPtr world) {
      if (world->rank() == 0) world->barrier();
    });
  });
  set_timeouts(before);
  CHECK_THAT(text, Contains("barrier number 0") && Contains("(limit 0.1 s)"));
}

TEST_CASE("threads: two ranks that exchange large messages do not block each other") {
  run_ranks(2, [](CommunicatorPtr world) {
    const at::Tensor mine = at::full({1 << 20}, world->rank(), at::kFloat), other = at::zeros({1 << 20}, at::kFloat);
    for (int i = 0; i < 5; ++i) {
      world->send(mine, 1 - world->rank())->wait();
      world->recv(other, 1 - world->rank())->wait();
      EXPECT(other.const_data_ptr<float>()[77] == 1 - world->rank());
    }
  });
}

TEST_CASE("fake: a dry run works in a world of any size") {
  const auto by_eight = [](const std::string& name, int rank) { return name == "tp" ? rank / 8 : rank % 8; };
  const CommunicatorPtr world = make_fake_world(1234, 4096, by_eight);
  CHECK(world->rank() == 1234);
  CHECK(world->size() == 4096);
  const auto tp = world->split(154, "tp");
  CHECK(tp->size() == 8);
  CHECK(tp->rank() == 2);
  CHECK(world->split(2, "dp")->size() == 512);
  const at::Tensor tensor = at::full({8}, 3, at::kFloat);
  CHECK(tp->all_reduce(tensor)->poll());
  tp->recv(tensor, 7)->wait();
  tp->barrier();
  CHECK(tensor.const_data_ptr<float>()[5] == 3);
  CHECK(gather_strings(*tp, "me") == std::vector<std::string>{"", "", "me", "", "", "", "", ""});
  CHECK(broadcast_string(*tp, "me", 0).empty());
  CHECK_THROWS_AS(tp->recv(tensor, 8), InvariantError);
  CHECK_THROWS_AS(make_fake_world(0, 2)->split(0, "tp"), ConfigError);
}

}  // namespace
}  // namespace shardline::threads_communicator_test
