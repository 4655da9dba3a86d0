#include "pipeline/schedule/schedule.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "pipeline/schedule/checker.h"
#include "pipeline/schedule/kinds/schedule_generators.h"
#include "pipeline/schedule/pictures/schedule_grid.h"
#include "pipeline/schedule/schedule_simulation.h"
#include "tests/pipeline/messages_of_errors.h"

#include "tests/catch.h"

namespace shardline::schedule_test {
namespace {

// A stage's list in short: s sends, r receives, a an activation, g a gradient.
std::string words(const Schedule& schedule, int stage) {
  static const char* letters[] = {"F", "B", "W", "sa", "ra", "sg", "rg", "reduce"};
  std::string text;
  for (const auto& i : schedule.instructions[stage]) {
    if (!text.empty()) text += ' ';
    text += letters[static_cast<int>(i.op)];
    if (i.microbatch >= 0) text += std::to_string(i.microbatch);
  }
  return text;
}

}  // namespace

TEST_CASE("simple: all forwards, then all backwards") {
  const auto schedule = simple_schedule(3, 2, 0);
  CHECK(words(schedule, 0) == "F0 sa0 F1 sa1 rg0 B0 W0 rg1 B1 W1 reduce");
  CHECK(words(schedule, 1) == "ra0 F0 sa0 ra1 F1 sa1 rg0 B0 W0 sg0 rg1 B1 W1 sg1 reduce");
  CHECK(words(schedule, 2) == "ra0 F0 ra1 F1 B0 W0 sg0 B1 W1 sg1 reduce");
  CHECK(schedule.stage_of_chunk == std::vector<int>{0, 1, 2});
  CHECK(schedule.instructions[1][0] == Instruction{Op::recv_activation, 0, 1, 0});
  CHECK(schedule.instructions[1][2] == Instruction{Op::send_activation, 0, 1, 2});
  CHECK(schedule.instructions[1].back() == Instruction{Op::end_gradients, -1, 1, -1});
}

TEST_CASE("simple runs in waves when fewer microbatches may be active") {
  CHECK(words(simple_schedule(1, 3, 2), 0) == "F0 F1 B0 W0 B1 W1 F2 B2 W2 reduce");
  CHECK(simple_schedule(3, 5, 5) == simple_schedule(3, 5, 0));
  CHECK(simple_schedule(3, 5, 99) == simple_schedule(3, 5, 0));
}

TEST_CASE("1F1B alternates after its warm-up") {
  const auto schedule = one_forward_one_backward(3, 4, 0);
  CHECK(words(schedule, 0) == "F0 sa0 F1 sa1 F2 sa2 rg0 B0 W0 F3 sa3 rg1 B1 W1 rg2 B2 W2 rg3 B3 W3 reduce");
  CHECK(words(schedule, 2) == "ra0 F0 B0 W0 sg0 ra1 F1 B1 W1 sg1 ra2 F2 B2 W2 sg2 ra3 F3 B3 W3 sg3 reduce");
  CHECK(one_forward_one_backward(3, 4, 7) == schedule);
}

TEST_CASE("forward schedules only go forward") {
  CHECK(words(forward_schedule(3, 2), 1) == "ra0 F0 sa0 ra1 F1 sa1");
  CHECK_FALSE(check_schedule(forward_schedule(3, 2)).training);
}

TEST_CASE("a single stage sends nothing") {
  CHECK(words(one_forward_one_backward(1, 2, 0), 0) == "F0 B0 W0 F1 B1 W1 reduce");
  CHECK(words(forward_schedule(1, 2), 0) == "F0 F1");
}

TEST_CASE("every generated schedule passes the checker and keeps its bound on active microbatches") {
  for (int stages = 1; stages <= 7; ++stages)
    for (int microbatches = 1; microbatches <= 9; ++microbatches) {
      CHECK(check_schedule(forward_schedule(stages, microbatches), 0).send_buffers == 0);
      for (int active = 0; active <= stages + 1; ++active) {
        CAPTURE(stages, microbatches, active);
        const auto simple = check_schedule(simple_schedule(stages, microbatches, active), 0);
        const int wave = active == 0 ? microbatches : std::min(active, microbatches);
        CHECK(simple.peak_activations == std::vector<int>(static_cast<size_t>(stages), wave));
        CHECK(simple.peak_weight_pairs == std::vector<int>(static_cast<size_t>(stages), 1));

        const auto alternating = check_schedule(one_forward_one_backward(stages, microbatches, active));
        const int most = active == 0 ? stages : std::min(active, stages);
        for (int stage = 0; stage < stages; ++stage) {
          const int peak = alternating.peak_activations[stage];
          CHECK(peak <= most);
          CHECK(peak <= stages - stage);
          if (stage == 0) CHECK(peak == std::min(most, microbatches));
        }
      }
    }
}

TEST_CASE("1F1B needs a send buffer exactly when neighbours send to each other at once") {
  CHECK(check_schedule(one_forward_one_backward(4, 8, 0)).send_buffers == 1);
  CHECK(check_schedule(one_forward_one_backward(4, 8, 1)).send_buffers == 0);
  CHECK(check_schedule(one_forward_one_backward(1, 8, 0)).send_buffers == 0);
  CHECK_THROWS_AS(check_schedule(one_forward_one_backward(4, 8, 0), 0), ScheduleError);
}

TEST_CASE("weight gradients that run after a message are not part of a whole backward") {
  const auto split = zb_h1(2, 1, 0);
  REQUIRE(words(split, 1) == "ra0 F0 B0 sg0 W0 reduce");
  for (size_t place = 0; place < split.instructions[1].size(); ++place)
    CHECK_FALSE(weights_follow(split.instructions[1], place));
  const auto whole = one_forward_one_backward(2, 1, 0);
  REQUIRE(words(whole, 1) == "ra0 F0 B0 W0 sg0 reduce");
  for (size_t place = 0; place < whole.instructions[1].size(); ++place)
    CHECK(weights_follow(whole.instructions[1], place) == (place == 2));
}

TEST_CASE("with fewer active microbatches, stages are busy as long as round trips allow") {
  // A microbatch takes 3 units on each stage, there and back together, so by Little's law `active` of them keep the
  // stages busy for at most active / stages of the time. Strict alternation reaches 1 / ceil(stages / active) of it.
  for (int stages = 2; stages <= 8; ++stages)
    for (int active = 1; active <= stages; ++active) {
      CAPTURE(stages, active);
      const double busy = 1 - bubble_fraction(one_forward_one_backward(stages, 240, active));
      CHECK(busy <= double(active) / stages + 1e-9);
      CHECK(busy >= 0.95 / ((stages + active - 1) / active));
    }
}

TEST_CASE("impossible sizes are refused with the option and the minimum") {
  CHECK(contains(message_of([] { one_forward_one_backward(2, 4, -1); }), "smp_options.active_microbatches is -1"));
  CHECK(contains(message_of([] { simple_schedule(2, 4, -3); }), "at least 1"));
  CHECK(contains(message_of([] { simple_schedule(2, 0, 0); }), "smp_options.microbatches"));
  CHECK(contains(message_of([] { forward_schedule(0, 1); }), "pipeline_parallel_degree"));
}

TEST_CASE("a schedule read back from JSON equals the original") {
  for (const auto& schedule : {simple_schedule(3, 4, 2), one_forward_one_backward(4, 6, 0), forward_schedule(2, 3)}) {
    const nlohmann::json json = schedule;
    CHECK(schedule_from_json(nlohmann::json::parse(json.dump()), "f") == schedule);
  }
  const nlohmann::json json = simple_schedule(2, 1, 0);
  CHECK(json["instructions"][0][0].dump() == R"({"chunk":0,"microbatch":0,"op":"forward"})");
  CHECK(json["instructions"][0].back().dump() == R"({"chunk":0,"op":"end_gradients"})");
}

TEST_CASE("a wrong schedule file is refused, and the error states the place") {
  const nlohmann::json good = simple_schedule(2, 2, 0);
  const auto refusal = [&](const char* pointer, const nlohmann::json& value) {
    auto bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    return message_of([&] { schedule_from_json(bad, "f.json"); });
  };
  CHECK(contains(refusal("/instructions/1/2/op", "forwards"),
                 "f.json: /instructions/1/2/op: unknown instruction; got \"forwards\""));
  CHECK(contains(refusal("/instructions/1/2/op", 3), "/instructions/1/2/op: must be a string; got 3"));
  CHECK(contains(refusal("/instructions/0/0/chunk", 1.5),
                 "/instructions/0/0/chunk: must be an integer >= -2147483648; got 1.5"));
  CHECK(contains(refusal("/instructions/0/0/chunk", true), "got true"));
  CHECK(contains(refusal("/instructions/0/0/microbatch", 1e3), "must be an integer"));
  CHECK(contains(refusal("/microbatches", 4294967296), "got 4294967296; the largest is 2147483647"));
  CHECK(contains(refusal("/microbatches", -4294967296), "must be an integer >= -2147483648"));
  CHECK(contains(refusal("/microbatches", 18446744073709551615u), "the largest is 2147483647"));
  CHECK(contains(refusal("/instructions/0", nlohmann::json::object()), "/instructions/0: must be an array"));
  CHECK(contains(refusal("/instructions/0/1", nullptr), "/instructions/0/1: must be an object"));
  CHECK(contains(refusal("/instructions/0/0/chunks", 0), "/instructions/0/0/chunks: unknown key"));
  CHECK(contains(refusal("/extra", 0), "f.json: /extra: unknown key"));
  CHECK(contains(refusal("/stage_of_chunk/1", "x"), "/stage_of_chunk/1"));
  CHECK(
      contains(message_of([] { schedule_from_json(nlohmann::json::array(), "f.json"); }), "f.json: must be an object"));
  for (const char* key : {"name", "stages", "microbatches", "stage_of_chunk", "instructions"}) {
    auto bad = good;
    bad.erase(key);
    CHECK(contains(message_of([&] { schedule_from_json(bad, "f.json"); }), cat("f.json: /", key, ": is missing")));
  }
}

}  // namespace shardline::schedule_test
