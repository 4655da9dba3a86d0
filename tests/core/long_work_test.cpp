#include "core/long_work.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/threads_communicator.h"
#include "core/timeouts.h"

#include "tests/catch.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Catch::Contains;

struct ShortLimit {
  explicit ShortLimit(std::chrono::milliseconds limit) : before(timeouts()) { set_timeouts({limit, limit, limit}); }
  ~ShortLimit() { set_timeouts(before); }
  const Timeouts before;
};

TEST_CASE("long work: takes longer than the limit as long as any rank makes progress") {
  const ShortLimit limit(400ms);
  std::atomic<int64_t> last_done = 0, last_total = 0;
  run_ranks(3, [&](CommunicatorPtr world) {
    LongWork work(
        *world, "reading", world->rank() != 2 ? LongWork::Show{} : [&](int64_t done, int64_t total) {
          last_done = done;
          last_total = total;
        });
    // Rank 0 works for four times the limit, rank 1 for a part of it, rank 2 only waits.
    for (int done = 1; done <= (world->rank() == 0 ? 16 : 4) && world->rank() < 2; ++done) {
      std::this_thread::sleep_for(100ms);
      work.report(done, world->rank() == 0 ? 16 : 4);
    }
    work.finish();
  });
  CHECK(last_done == 20);
  CHECK(last_total == 20);
}

TEST_CASE("long work: several threads of a rank report, and the group is free again afterwards") {
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
}  // namespace shardline
