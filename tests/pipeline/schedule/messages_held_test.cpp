#include "pipeline/schedule/messages_held.h"

#include <algorithm>

#include "pipeline/schedule/kinds/schedule_generators.h"

#include "tests/catch.h"

namespace shardline::messages_held_test {
namespace {

int most_of_first_stage(int host_ahead) {
  const Schedule schedule = simple_schedule(2, 8, 0);
  const auto held = messages_held(
      schedule, [](int, const Instruction&) { return 1; }, host_ahead);
  return *std::max_element(held[0].begin(), held[0].end());
}

}  // namespace

// The second stage posts its receive of an activation when it has received the previous one, so every send leaves at
// once. The most is held when the first gradient has arrived: the gradient, the next one, whose receive is posted
// ahead, and the last sends.
TEST_CASE("messages that have left are held until the host has seen that, and then until the next send") {
  CHECK(most_of_first_stage(0) == 2 + 1);
  CHECK(most_of_first_stage(kInstructionsAhead) == 2 + kInstructionsAhead);
}

}  // namespace shardline::messages_held_test
