#include "core/comm/long_work.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/comm/clock.h"
#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"

#include "tests/catch.h"

namespace shardline::long_work_test {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

struct ShortLimit {
  explicit ShortLimit(std::chrono::milliseconds limit) : before(timeouts()) { set_timeouts({limit, limit, limit}); }
  ~ShortLimit() { set_timeouts(before); }
  const Timeouts before;
};

TEST_CASE("long work: may take longer than the limit while any rank makes progress") {
  const ShortLimit limit(400ms);
  std::atomic<int64_t> last_done = 0, last_total = 0;
  run_ranks(3, [&](CommunicatorPtr world) {
    LongWork work(
        *world, "reading", world->rank() != 2 ? LongWork::Show{} : [&](int64_t done, int64_t total) {
          last_done = done;
          last_total = total;
        });
    // Rank 0 works for four times the limit, rank 1 for part of it, and rank 2 only waits.
    for (int done = 1; done <= (world->rank() == 0 ? 16 : 4) && world->rank() < 2; ++done) {
      std::this_thread::sleep_for(100ms);
      work.report(done, world->rank() == 0 ? 16 : 4);
    }
    work.finish();
  });
  CHECK(last_done == 20);
  CHECK(last_total == 20);
}

TEST_CASE("long work: the time between reports may be almost as long as the limit") {
  const ShortLimit limit(1000ms);
  run_ranks(2, [](CommunicatorPtr world) {
    LongWork work(*world, "writing");
    for (int done = 1; done <= 4 && world->rank() == 0; ++done) {
      std::this_thread::sleep_for(700ms);
      work.report(done, 4);
    }
    work.finish();
  });
}

TEST_CASE("long work: a rank that waits for another group ends when a peer fails") {
  const double start = steady_seconds();
  CHECK_THROWS_WITH(run_ranks(2,
                              [](CommunicatorPtr world) {
                                const CommunicatorPtr other = world->split(0, "other");
                                LongWork work(*world, "writing");
                                if (world->rank() == 0) {
                                  std::this_thread::sleep_for(200ms);
                                  throw RunError("the disk is full");
                                }
                                const at::Tensor value = at::zeros({1}, at::kLong);
                                work.await(*other->all_reduce(value));
                                work.finish();
                              }),
                    Contains("the disk is full"));
  CHECK(steady_seconds() - start < 30);
}

TEST_CASE("long work: several threads of a rank may report, and the group is free again afterwards") {
  run_ranks(2, [](CommunicatorPtr world) {
    LongWork work(*world, "reading");
    std::vector<std::thread> threads;
    std::atomic<int64_t> done = 0;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int part = 0; part < 200; ++part) work.report(++done, 800);
      });
    for (auto& thread : threads) thread.join();
    work.finish();
    world->barrier();
  });
}

TEST_CASE("long work: ranks wait for operations of other groups while any rank makes progress") {
  const ShortLimit limit(400ms);
  run_ranks(3, [&](CommunicatorPtr world) {
    const auto pair = world->split(world->rank() / 2, "pair");
    LongWork work(*world, "writing");
    // Rank 0 works for three times the limit before it meets rank 1, and rank 2 has nothing to do.
    for (int done = 1; done <= 12 && world->rank() == 0; ++done) {
      std::this_thread::sleep_for(100ms);
      work.report(done, 12);
    }
    if (world->rank() < 2) work.await(*pair->all_reduce(at::ones({2})));
    work.finish();
  });
}

TEST_CASE("long work: ranks that wait for another group's operation see that no rank makes progress") {
  const ShortLimit limit(300ms);
  CHECK_THROWS_WITH(run_ranks(2,
                              [](CommunicatorPtr world) {
                                const auto pair = world->split(0, "pair");
                                LongWork work(*world, "writing the model");
                                if (world->rank() == 0) std::this_thread::sleep_for(1500ms);
                                work.await(*pair->all_reduce(at::ones({2})));
                                work.finish();
                              }),
                    Contains("rank 1") && Contains("writing the model") && Contains("time limit"));
}

TEST_CASE("long work: ends with an error that names it when no rank makes progress") {
  const ShortLimit limit(300ms);
  CHECK_THROWS_WITH(run_ranks(2,
                              [](CommunicatorPtr world) {
                                LongWork work(*world, "writing the model");
                                if (world->rank() == 0) {
                                  work.report(1, 2);
                                  std::this_thread::sleep_for(1500ms);
                                }
                                work.finish();
                              }),
                    Contains("writing the model") && Contains("time limit"));
}

}  // namespace
}  // namespace shardline::long_work_test
