#include "core/comm/clock.h"

#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/comm/threads_communicator.h"

#include "tests/catch.h"

namespace shardline::clock_test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("clock: ranks of one host share it") {
  std::atomic<int> ranks = 0;
  run_ranks(3, [&](CommunicatorPtr world) { ranks += clock_offset(*world) == 0; });
  CHECK(ranks == 3);
}

TEST_CASE("clock: time spent waiting for other ranks is counted, time spent computing is not") {
  std::atomic<double> early = 0, late = 0;
  run_ranks(2, [&](CommunicatorPtr world) {
    const double before = waited_seconds();
    if (world->rank() == 1) std::this_thread::sleep_for(200ms);
    world->all_reduce(at::zeros({1}))->wait();
    (world->rank() == 0 ? early : late) = waited_seconds() - before;
  });
  CHECK(early >= 0.15);
  CHECK(late < 0.1);
}

}  // namespace
}  // namespace shardline::clock_test
