// Two ranks of a lane, as two threads that take turns on one core: each is interrupted at arbitrary places in its
// polling.
#include "core/comm/mpi/shared_lane.h"

#include <sched.h>

#include <chrono>
#include <deque>
#include <thread>

#include "core/error.h"
#include "tests/mpi/mpi_main.h"

#include "tests/catch.h"

namespace shardline::shared_lane_test {
namespace {

using mpi::SharedLane;
using mpi::SharedSegment;

constexpr int kCollectives = 1500, kInFlight = 8;

CommRequest gather(int number, const at::Tensor& input, const at::Tensor& output) {
  CommRequest request;
  request.op = CommOp::all_gather;
  request.input = input;
  request.output = output;
  request.sequence = number;
  return request;
}

bool stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return ::sched_setaffinity(0, sizeof cores, &cores) == 0;  // binds the calling thread
}

// Gathers round after round, always with some in flight; returns the first error, or an empty string.
std::string gather_often(std::unique_ptr<SharedSegment> segment, int rank) {
  segment->sign_in(rank);
  SharedLane lane(std::move(segment), rank, {0, 1});
  std::vector<at::Tensor> inputs, outputs;
  for (int i = 0; i < kInFlight; ++i) {
    inputs.push_back(at::empty({1}, at::kInt));
    outputs.push_back(at::empty({2}, at::kInt));
  }
  std::deque<std::shared_ptr<mpi::Completion>> started;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int begun = 0, ended = 0; ended < kCollectives;) {
    while (begun < kCollectives && begun - ended < kInFlight) {
      inputs[begun % kInFlight].fill_(2 * begun + rank);
      started.push_back(std::make_shared<mpi::Completion>(0));
      lane.start(gather(begun, inputs[begun % kInFlight], outputs[begun % kInFlight]), started.back());
      ++begun;
    }
    lane.advance();
    while (!started.empty() && started.front()->over()) {
      if (!started.front()->error().empty()) return cat("number ", ended, ": ", started.front()->error());
      const int* const both = outputs[ended % kInFlight].const_data_ptr<int>();
      if (both[0] != 2 * ended || both[1] != 2 * ended + 1) return cat("number ", ended, " gathered other values");
      started.pop_front();
      ++ended;
    }
    if (std::chrono::steady_clock::now() > limit) return cat("only ", ended, " collectives ended in time");
  }
  return "";
}

TEST_CASE("mpi: a rank that begins its next round early is not mistaken for one that disagrees", "[alone]") {
  auto mine = SharedSegment::make(SharedLane::bytes_for(2));
  REQUIRE(mine);
  auto theirs = SharedSegment::find(mine->offer(), SharedLane::bytes_for(2));
  REQUIRE(theirs);
  std::string error, error_of_other;
  const int core = ::sched_getcpu();
  std::thread one([&] { error = !stay_on(core) ? "cannot stay on a core" : gather_often(std::move(mine), 0); });
  std::thread other(
      [&] { error_of_other = !stay_on(core) ? "cannot stay on a core" : gather_often(std::move(theirs), 1); });
  one.join();
  other.join();
  CHECK(error == "");
  CHECK(error_of_other == "");
}

}  // namespace
}  // namespace shardline::shared_lane_test
