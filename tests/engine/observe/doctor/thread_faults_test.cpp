// Faults of ranks that are threads: each is diagnosed within the limit of a wait plus two seconds.
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "engine/observe/doctor/diagnosis_text.h"
#include "engine/observe/doctor/job_records.h"
#include "tests/engine/observe/doctor/fault_scenario.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::thread_faults_test {
namespace {

using Catch::Contains;
using testing::Fault;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kLimit = 1s;

struct Outcome {
  Diagnosis diagnosis;
  double seconds = 0;  // from the fault to the diagnosis
};

using RankProgram = std::function<void(Communicator& world)>;

// Runs the ranks. The first one that fails makes the diagnosis, while others may still run.
Outcome outcome_of(const RankProgram& program, const std::atomic<Clock::time_point>& fault_at) {
  const ScratchFolder folder;
  const auto flights = flight_folder(folder.path());
  std::filesystem::create_directories(flights);
  write_job_places(flights, 0, {{"a", "a", "a", "a"}, testing::fault_scenario_stages()});
  open_flight_ring({.path = flights / "rank-0", .ranks = 4, .world_size = 4});
  const Timeouts before = timeouts();
  set_timeouts({kLimit, kLimit, kLimit});
  std::mutex mutex;
  std::optional<Outcome> outcome;
  try {
    run_ranks(4, [&](CommunicatorPtr world) {
      try {
        program(*world);
        flight_ring().end_rank(world->rank(), FlightEnd::done, "");
      } catch (const std::exception& error) {
        const bool waited = dynamic_cast<const DistributedError*>(&error) != nullptr;
        flight_ring().end_rank(world->rank(), waited ? FlightEnd::gave_up : FlightEnd::failed, error.what());
        {
          const std::lock_guard lock(mutex);
          if (!outcome)
            outcome = {diagnose(read_job_records(flights, false)),
                       std::chrono::duration<double>(Clock::now() - fault_at.load()).count()};
        }
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  set_timeouts(before);
  if (!outcome) outcome = {diagnose(read_job_records(flights, false)), 0};
  open_flight_ring({});  // the file is removed
  return *outcome;
}

Outcome outcome_of(Fault fault) {
  std::atomic<Clock::time_point> fault_at{Clock::time_point{}};
  const auto at_fault = fault.at_fault;
  fault.at_fault = [&] {
    fault_at = Clock::now();
    at_fault();
  };
  return outcome_of([&](Communicator& world) { testing::run_fault_scenario(world, fault); }, fault_at);
}

Outcome named(const Fault& fault) {
  const Outcome outcome = outcome_of(fault);
  INFO(verdict(outcome.diagnosis) << '\n' << situations_text(outcome.diagnosis, 16));
  CHECK(outcome.diagnosis.culprits == std::vector{testing::kFaultyRank});
  CHECK(outcome.seconds < std::chrono::duration<double>(kLimit).count() + 2);
  return outcome;
}

TEST_CASE("threads: without a fault, no rank is blamed") {
  const Outcome outcome = outcome_of({});
  CHECK(outcome.diagnosis.cause == Cause::none);
  CHECK_THAT(verdict(outcome.diagnosis), Contains("all ranks ended normally"));
}

TEST_CASE("threads: a rank that stops is named") {
  const Outcome outcome = named({Fault::Kind::stops, [] { std::this_thread::sleep_for(kLimit + 3s); }});
  CHECK(outcome.diagnosis.cause == Cause::behind);
  // Rank 0 waits for gradients and the other stage for the loss; which wait began first depends on the scheduler.
  CHECK_THAT(verdict(outcome.diagnosis),
             Contains("rank 1 (host a, stage 0) is 1 collective behind on ") &&
                 (Contains("on 'dp': ") || Contains("on 'world': ")) &&
                 (Contains("(for gradients of h.2)") || Contains("(for loss)")) &&
                 Contains("last seen in backward_input of h.2, microbatch 0, chunk 0, step 3"));
}

TEST_CASE("threads: a rank that dies is named") {
  const Outcome outcome = named({Fault::Kind::stops, [] { throw DataError("row 7 has no label"); }});
  CHECK(outcome.diagnosis.cause == Cause::failed);
  CHECK_THAT(verdict(outcome.diagnosis), Contains("row 7 has no label"));
}

TEST_CASE("threads: a rank that skips a collective is named") {
  const Outcome outcome = named({Fault::Kind::skips});
  CHECK(outcome.diagnosis.cause == Cause::skipped);
  CHECK_THAT(verdict(outcome.diagnosis), Contains("rank 1 (host a, stage 0) has skipped all_reduce number 9") &&
                                             Contains("(for gradients of h.2)"));
}

TEST_CASE("threads: a rank that sends another size is named") {
  const Outcome outcome = outcome_of({Fault::Kind::other_size});
  CHECK(outcome.diagnosis.cause == Cause::disagrees);
  CHECK(outcome.diagnosis.culprits == std::vector{0, 1});  // either of the two ranks may be wrong
  CHECK(outcome.seconds < 3);
  CHECK_THAT(verdict(outcome.diagnosis), Contains("sizes differ: 768 on rank 0, 1536 on rank 1"));
}

TEST_CASE("threads: a message that is held back is named") {
  const Outcome outcome = named({Fault::Kind::keeps});
  CHECK(outcome.diagnosis.cause == Cause::behind);
  CHECK_THAT(verdict(outcome.diagnosis), Contains("rank 1 (host a, stage 0) has not sent a message: rank 3 waited") &&
                                             Contains("activation, microbatch 0, chunk 1"));
}

TEST_CASE("threads: a rank that stops is named even if the record of the wait has been overwritten") {
  const std::atomic<Clock::time_point> began{Clock::now()};
  const Outcome outcome = outcome_of(
      [](Communicator& world) {
        const at::Tensor border = at::zeros({8, 16});
        if (world.rank() == 1) std::this_thread::sleep_for(kLimit + 1s);
        if (world.rank() != 0) return;
        const WorkPtr posted = world.recv(border, 1, {.what = "gradient, microbatch 0, chunk 0"});
        for (int i = 0; i < 5000; ++i) world.send(border, 2)->wait();
        posted->wait();
      },
      began);
  CHECK(outcome.diagnosis.cause == Cause::behind);
  CHECK(outcome.diagnosis.culprits == std::vector{1});
  CHECK_THAT(verdict(outcome.diagnosis), Contains("rank 1 (host a, stage 0) has not sent a message: rank 0 waited") &&
                                             Contains("gradient, microbatch 0, chunk 0"));
  CHECK_THAT(situations_text(outcome.diagnosis, 16), Contains("rank 0 (host a, stage 0): waited"));
}

}  // namespace
}  // namespace shardline::thread_faults_test
