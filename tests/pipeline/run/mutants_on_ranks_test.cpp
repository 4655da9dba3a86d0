// What the checker accepts must run on ranks that really wait for each other.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <tuple>

#include "core/comm/threads_communicator.h"
#include "core/error.h"
#include "pipeline/schedule/checker.h"
#include "tests/pipeline/mutants.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::mutants_on_ranks_test {
namespace {

// Runs only the messages: each carries its kind, microbatch and the receiver's chunk, and the receiver looks at them.
// Sends do not wait, as in the executor.
void run_messages(const Schedule& schedule) {
  run_ranks(schedule.stages, [&](CommunicatorPtr pp) {
    std::vector<std::pair<WorkPtr, at::Tensor>> sends;
    for (const auto& i : schedule.instructions[pp->rank()]) {
      const bool activation = i.op == Op::send_activation || i.op == Op::recv_activation;
      const auto note = [&](int chunk) {
        return at::tensor({int64_t{activation}, int64_t{i.microbatch}, int64_t{chunk}}, at::kLong);
      };
      if (is_send(i.op)) {
        auto message = note(activation ? i.chunk + 1 : i.chunk - 1);
        sends.emplace_back(pp->send(message, i.peer, {.what = to_string(i.op)}), message);
      } else if (is_receive(i.op)) {
        auto message = at::empty({3}, at::kLong);
        pp->recv(message, i.peer, {.what = to_string(i.op), .timeout = std::chrono::seconds(10)})->wait();
        SL_ASSERT(at::equal(message, note(i.chunk)), "another message came for ", to_string(i));
      }
    }
    for (auto& [work, message] : sends) work->wait();
  });
}

bool same_instructions(Schedule a, Schedule b) {
  const auto sorted = [](Schedule& schedule) {
    for (auto& list : schedule.instructions)
      std::sort(list.begin(), list.end(), [](const Instruction& x, const Instruction& y) {
        return std::tie(x.op, x.microbatch, x.chunk, x.peer) < std::tie(y.op, y.microbatch, y.chunk, y.peer);
      });
  };
  sorted(a), sorted(b);
  return a == b;
}

}  // namespace

TEST_CASE("every accepted mutant of every schedule is a reordering that runs on ranks") {
  std::mt19937 random(7);
  int mutants = 0, accepted = 0;
  for (const auto& [stages, rounds] : {std::pair{2, 120}, {3, 120}, {4, 120}, {8, 20}})
    for (const int microbatches : {2, 4})
      for (const auto& schedule : all_schedules(stages, microbatches)) {
        run_messages(schedule);
        for (int round = 0; round < rounds; ++round) {
          const auto mutant = mutant_of(schedule, random);
          if (mutant == schedule) continue;
          ++mutants;
          CheckReport report;
          try {
            report = check_schedule(mutant);
          } catch (const ScheduleError& error) {
            if (error.stage >= 0 && error.index >= 0)
              REQUIRE(static_cast<size_t>(error.index) < mutant.instructions[error.stage].size());
            continue;
          }
          ++accepted;
          CAPTURE(schedule.name, stages, microbatches, round);
          REQUIRE(same_instructions(mutant, schedule));
          REQUIRE(simulate(mutant, report.send_buffers, [](int, const Instruction&) { return 1.0; }).finished(mutant));
          REQUIRE_NOTHROW(run_messages(mutant));
        }
      }
  CHECK(mutants > 4000);
  CHECK(accepted > 200);
  WARN(mutants << " mutants, of which " << accepted << " are reorderings that run");
}

}  // namespace shardline::mutants_on_ranks_test
