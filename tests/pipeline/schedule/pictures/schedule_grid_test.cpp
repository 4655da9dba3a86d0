#include "pipeline/schedule/pictures/schedule_grid.h"

#include <algorithm>
#include <sstream>

#include "pipeline/schedule/checker.h"

#include "tests/catch.h"

namespace shardline::schedule_grid_test {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

}  // namespace

TEST_CASE("the grid shows stages downwards and time to the right") {
  CHECK(text_grid(one_forward_one_backward(2, 3, 0)) ==
        "stage 0  F0 F1 .  .  B0 W0 F2 B1 W1 .  B2 W2\n"
        "stage 1  .  F0 B0 W0 F1 B1 W1 F2 B2 W2 .  .\n");
  CHECK(text_grid(simple_schedule(3, 2, 0)) ==
        "stage 0  F0 F1 .  .  .  .  .  .  B0 W0 B1 W1\n"
        "stage 1  .  F0 F1 .  .  .  B0 W0 B1 W1 .  .\n"
        "stage 2  .  .  F0 F1 B0 W0 B1 W1 .  .  .  .\n");
  CHECK(text_grid(forward_schedule(2, 2)) == "stage 0  F0 F1 .\nstage 1  .  F0 F1\n");
}

TEST_CASE("chunks are named where a stage has several") {
  Schedule folded{"folded", 1, 1, {0, 0}, {{{Op::forward, 0, 0}, {Op::forward, 0, 1}}}};
  check_schedule(folded);
  CHECK(text_grid(folded) == "stage 0  F0/0 F0/1\n");
}

TEST_CASE("the middle of a wide grid is left out, and the grid says so") {
  const auto schedule = one_forward_one_backward(4, 64, 0);
  const auto whole = lines(text_grid(schedule, 100000));
  REQUIRE(whole.size() == 4);
  for (int width : {0, 30, 31, 32, 33, 80, 160}) {
    const auto grid = lines(text_grid(schedule, width));
    REQUIRE(grid.size() == 5);
    for (size_t stage = 0; stage < 4; ++stage) {
      CHECK(grid[stage].size() <= static_cast<size_t>(std::max(width, 21)));
      const auto gap = grid[stage].find('~');
      CHECK(whole[stage].substr(0, gap) == grid[stage].substr(0, gap));
    }
  }
  CHECK(lines(text_grid(schedule, 80)).back() == "~: units 8 to 192 of 0 to 200 are left out");
  // With exactly the necessary width, nothing is omitted; with one column less, the middle is.
  const auto narrow = one_forward_one_backward(2, 3, 0);
  const int enough = 9 + 12 * 3;
  CHECK(lines(text_grid(narrow, enough)).size() == 2);
  CHECK(lines(text_grid(narrow, enough - 1)).size() == 3);
}

TEST_CASE("the bubble of GPipe and 1F1B is (p - 1) / (m + p - 1)") {
  for (int stages = 1; stages <= 9; ++stages)
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      CAPTURE(stages, microbatches);
      const double bubble = double(stages - 1) / (microbatches + stages - 1);
      for (const UnitCosts costs : {UnitCosts{}, UnitCosts{1, 1.5, 0.25}, UnitCosts{3, 1, 1}}) {
        CHECK(bubble_fraction(simple_schedule(stages, microbatches, 0), costs) == Approx(bubble).margin(1e-12));
        CHECK(bubble_fraction(one_forward_one_backward(stages, microbatches, 0), costs) ==
              Approx(bubble).margin(1e-12));
      }
      CHECK(bubble_fraction(forward_schedule(stages, microbatches)) == Approx(bubble).margin(1e-12));
    }
}

TEST_CASE("each wave has a bubble of its own") {
  // Two waves of 4 cost twice as much as a step of 4 microbatches.
  CHECK(bubble_fraction(simple_schedule(3, 8, 4)) == Approx(bubble_fraction(simple_schedule(3, 4, 0))));
}

TEST_CASE("a schedule that cannot run is an error, not a grid") {
  auto schedule = forward_schedule(2, 1);
  schedule.instructions[0].pop_back();
  CHECK_THROWS_AS(text_grid(schedule), InvariantError);
}

}  // namespace shardline::schedule_grid_test
