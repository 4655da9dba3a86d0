#include "pipeline/schedule/kinds/schedule_generators.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/files/schedule_file.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "pipeline/schedule/schedule_simulation.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::schedule_generators_test {
namespace {

struct Times {
  double makespan = 0, longest_stage = 0;  // longest_stage: from its first to its last computation
};

Times times_of(const Schedule& schedule, const UnitCosts& costs = {}) {
  const auto simulation = simulate(schedule, kUnboundedSends, [&](int, const Instruction& i) {
    return i.op == Op::forward           ? costs.forward
           : i.op == Op::backward_input  ? costs.backward_input
           : i.op == Op::backward_weight ? costs.backward_weight
                                         : 0;
  });
  REQUIRE(simulation.finished(schedule));
  Times times{.makespan = simulation.makespan()};
  for (size_t stage = 0; stage < schedule.instructions.size(); ++stage) {
    double first = times.makespan, last = 0;
    for (size_t i = 0; i < schedule.instructions[stage].size(); ++i) {
      if (schedule.instructions[stage][i].op > Op::backward_weight) continue;
      first = std::min(first, simulation.intervals[stage][i].start);
      last = std::max(last, simulation.intervals[stage][i].end);
    }
    times.longest_stage = std::max(times.longest_stage, last - first);
  }
  return times;
}

// Joins the forward of one chunk and the whole backward of another into one piece: what both need arrives before it,
// and what both produce is sent after it. DualPipeV's bubble is stated for such pieces; the schedule itself passes
// results on as soon as they exist.
Schedule with_joined_pairs(Schedule schedule, int stages) {
  for (int stage = 0; stage < stages; ++stage) {
    auto& list = schedule.instructions[size_t(stage)];
    std::vector<Instruction> work;
    for (const auto& i : list)
      if (computes(i.op)) work.push_back(i);
    // The place of a computation in the list, and of the messages around it.
    const auto at = [&](const Instruction& i) { return std::find(list.begin(), list.end(), i); };
    bool apart = stage + 1 == stages;  // the last stage begins the middle with a forward for itself
    for (size_t k = 0; k + 2 < work.size(); ++k) {
      const auto forward = work[k], input = work[k + 1], weight = work[k + 2];
      const bool whole =
          input.op == Op::backward_input && weight == Instruction{Op::backward_weight, input.microbatch, input.chunk};
      if (forward.op != Op::forward || !whole || input.chunk == forward.chunk) continue;
      if (at(input) + 1 != at(weight)) continue;
      if (std::exchange(apart, false)) continue;
      // Receives of the backward go before the forward, sends of the forward after the backward.
      auto begin = at(forward), end = at(weight) + 1;
      std::stable_sort(begin, end, [](const Instruction& a, const Instruction& b) {
        const auto rank = [](const Instruction& i) { return is_receive(i.op) ? 0 : is_send(i.op) ? 2 : 1; };
        return rank(a) < rank(b);
      });
    }
  }
  return schedule;
}

std::vector<int> microbatches_to_8p(int stages) {
  std::vector<int> all;
  for (int m = stages; m <= 8 * stages; ++m) all.push_back(m);
  return all;
}

}  // namespace

TEST_CASE("GPipe and 1F1B wait (p-1)(F+B+W)") {
  for (int p = 2; p <= 16; ++p)
    for (const int m : microbatches_to_8p(p))
      for (const UnitCosts c : {UnitCosts{}, UnitCosts{2, 3, 1}}) {
        const double unit = c.forward + c.backward_input + c.backward_weight;
        CAPTURE(p, m);
        CHECK(times_of(simple_schedule(p, m, 0), c).makespan == (m + p - 1) * unit);
        CHECK(times_of(one_forward_one_backward(p, m, 0), c).makespan == (m + p - 1) * unit);
      }
}

TEST_CASE("GPipe keeps all microbatches, 1F1B p - s on stage s") {
  for (int p = 2; p <= 16; ++p)
    for (const int m : microbatches_to_8p(p)) {
      CAPTURE(p, m);
      CHECK(check_schedule(simple_schedule(p, m, 0)).peak_activations == std::vector<int>(size_t(p), m));
      std::vector<int> kept;
      for (int s = 0; s < p; ++s) kept.push_back(p - s);
      CHECK(check_schedule(one_forward_one_backward(p, m, 0)).peak_activations == kept);
    }
}

TEST_CASE("interleaved 1F1B waits (p-1)/(v m) of the ideal time where p divides m, elsewhere no longer than 1F1B") {
  for (int p = 2; p <= 16; ++p)
    for (int v = 1; v <= 4; ++v)
      for (const int m : microbatches_to_8p(p)) {
        CAPTURE(p, v, m);
        const auto schedule = interleaved_1f1b(p, m, v, 0);
        for (const UnitCosts c : {UnitCosts{}, UnitCosts{2, 3, 1}}) {
          const double ideal = m * v * (c.forward + c.backward_input + c.backward_weight);
          const double bubble = times_of(schedule, c).makespan / ideal - 1;
          if (m % p == 0) CHECK(bubble == Approx(double(p - 1) / (v * m)).epsilon(1e-12));
          CHECK(bubble >= double(p - 1) / (v * m) - 1e-12);
          CHECK(bubble <= double(p - 1) / m + 1e-12);
        }
        if (m % p > 0 || v == 1) continue;
        const auto report = check_schedule(schedule);
        for (int s = 0; s < p; ++s)
          CHECK(report.peak_activations[size_t(s)] == std::min(2 * (p - 1 - s) + (v - 1) * p + 1, m * v));
      }
}

TEST_CASE("ZB-H1 waits (p-1)(F+B-W) and keeps what 1F1B keeps") {
  for (int p = 2; p <= 16; ++p)
    for (const int m : microbatches_to_8p(p)) {
      CAPTURE(p, m);
      const auto schedule = zb_h1(p, m, 0);
      for (const UnitCosts c : {UnitCosts{}, UnitCosts{2, 3, 1}, UnitCosts{4, 5, 4}}) {
        const double work = m * (c.forward + c.backward_input + c.backward_weight);
        CHECK(times_of(schedule, c).makespan == work + (p - 1) * (c.forward + c.backward_input - c.backward_weight));
      }
      const auto report = check_schedule(schedule);
      CHECK(report.peak_activations == check_schedule(one_forward_one_backward(p, m, 0)).peak_activations);
      for (int s = 0; s < p; ++s) CHECK(report.peak_weight_pairs[size_t(s)] <= s + 1);
    }
}

TEST_CASE("1F1B that sends between its halves is between 1F1B and ZB-H1") {
  for (int p = 2; p <= 8; ++p) {
    const auto split = schedule_from_cells(text_grid(one_forward_one_backward(p, 3 * p, 0), 100000), "split");
    CHECK(times_of(split).makespan == 9 * p + (p - 1) * 2);  // (p-1)(F+B)
  }
}

TEST_CASE("ZB-H2's stages never wait, but start and end one after the other") {
  for (int p = 2; p <= 16; ++p)
    for (const int m : microbatches_to_8p(p)) {
      if (m < 2 * p - 1) continue;
      CAPTURE(p, m);
      const auto schedule = zb_h2(p, m, 0);
      const auto times = times_of(schedule);
      for (const UnitCosts c : {UnitCosts{2, 3, 1}, UnitCosts{4, 5, 4}}) {
        const double work = m * (c.forward + c.backward_input + c.backward_weight);
        CHECK(times_of(schedule, c).longest_stage ==
              work + (p - 1) * (c.forward + c.backward_input - 2 * c.backward_weight));
      }
      CHECK(times.longest_stage == 3 * m);     // (p-1)(F+B-2W) = 0
      CHECK(times.makespan == 3 * m + p - 1);  // between optimizer barriers
      const auto report = check_schedule(schedule);
      for (int s = 0; s < p; ++s) CHECK(report.peak_activations[size_t(s)] == 2 * p - 1 - 2 * s);
    }
}

TEST_CASE("ZB-V's stages never wait with 1F1B's activations") {
  for (int p = 2; p <= 16; ++p)
    for (const int m : microbatches_to_8p(p)) {
      if (m < 2 * p - 1) continue;
      CAPTURE(p, m);
      const auto schedule = zbv(p, m, 0);
      const auto times = times_of(schedule);
      CHECK(times.longest_stage == 6 * m);
      CHECK(times.makespan == 6 * m + p - 1);
      CHECK(check_schedule(schedule).peak_activations == std::vector<int>(size_t(p), 2 * p));
    }
}

TEST_CASE("DualPipeV waits (p-1)(F&B+B-3W) of a chunk where pairs run as one") {
  for (int p = 2; p <= 16; ++p)
    for (const int m : microbatches_to_8p(p)) {
      if (m < 2 * p) continue;
      CAPTURE(p, m);
      const auto schedule = dualpipev(p, m, 0);
      const auto joined = with_joined_pairs(schedule, p);
      CHECK_NOTHROW(check_schedule(joined));
      CHECK(times_of(joined).makespan == 6 * m + (p - 1) * (3 + 2 - 3));
      CHECK(times_of(schedule).makespan == 6 * m + p - 1);  // apart, results are passed on earlier
      const auto peaks = check_schedule(schedule).peak_activations;
      CHECK(*std::max_element(peaks.begin(), peaks.end()) == 2 * p + 1);
    }
}

TEST_CASE("no schedule beats the lower bound or is slower than 1F1B") {
  for (int p = 1; p <= 9; ++p)
    for (int m = 1; m <= 3 * p + 2; ++m)
      for (const auto& schedule : all_schedules(p, m)) {
        CAPTURE(schedule.name, p, m);
        const int v = schedule.chunks() / p;
        const double makespan = times_of(schedule).makespan;
        CHECK(makespan >=
              3 * m * v + (schedule.stage_of_chunk.back() == p - 1 ? p - 1 : 0));  // the last stage starts late
        CHECK(makespan >= 2 * schedule.chunks() + 1);                              // the path of one microbatch
        CHECK(makespan <= 3 * v * (m + p - 1));
      }
}

TEST_CASE("every schedule keeps its bound on active microbatches, down to 1") {
  for (int p = 1; p <= 5; ++p)
    for (int m = 1; m <= 2 * p + 3; ++m)
      for (int active = 1; active <= 2 * p; ++active)
        for (const auto& schedule : all_schedules(p, m, active)) {
          CAPTURE(schedule.name, p, m, active);
          const auto report = check_schedule(schedule);
          CHECK(report.training);
          for (int stage = 0; stage < p; ++stage) {
            std::set<int> alive;
            size_t most = 0;
            const int first = stage;  // the first chunk of every stage has its number
            for (const auto& i : schedule.instructions[size_t(stage)]) {
              if (i.chunk != first) continue;
              if (i.op == Op::forward) alive.insert(i.microbatch);
              most = std::max(most, alive.size());
              if (i.op == Op::backward_weight) alive.erase(i.microbatch);
            }
            CHECK(int(most) <= active);
            CHECK(report.peak_activations[size_t(stage)] <= active * (schedule.chunks() / p));
          }
        }
}

TEST_CASE("a bound without effect changes nothing") {
  const auto free = all_schedules(4, 8), bounded = all_schedules(4, 8, 99);
  CHECK(free == bounded);
}

TEST_CASE("forward schedules follow the chunks, at full speed") {
  for (int p = 1; p <= 5; ++p)
    for (const auto& trained : all_schedules(p, 6)) {
      const auto schedule = forward_schedule(trained.stage_of_chunk, p, 6);
      CAPTURE(trained.name, p);
      CHECK_FALSE(check_schedule(schedule).training);
      const int v = schedule.chunks() / p;
      CHECK(times_of(schedule).makespan <= 6 * v + schedule.chunks() - 1);
    }
  CHECK(forward_schedule({0, 1, 2}, 3, 4) == forward_schedule(3, 4));
}

TEST_CASE("split schedules send gradients before their weights, whole backwards after") {
  for (const auto& schedule : {zb_h1(3, 4, 0), one_forward_one_backward(3, 4, 0)}) {
    const bool split = schedule.name == "ZB-H1";
    const auto& list = schedule.instructions[1];
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].op == Op::backward_input) CHECK(list[i + 1].op == (split ? Op::send_gradient : Op::backward_weight));
  }
}

}  // namespace shardline::schedule_generators_test
