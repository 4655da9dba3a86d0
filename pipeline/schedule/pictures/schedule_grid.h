// Prints a schedule as text: stages downwards, time to the right.
#pragma once
#include <string>

#include "pipeline/schedule/schedule.h"

namespace shardline {

// The time of one microbatch in one chunk; sends and receives take none.
struct UnitCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

// 0 for instructions that do not compute.
double cost_of(const UnitCosts& costs, Op op);

// One row per stage and one cell per unit of time, with all costs equal to 1: "F3" is the forward, "B3" the input
// gradient, "W3" the weight gradient of microbatch 3, "." idle; if stages have several chunks, the chunk follows:
// "F3/1". If rows are longer than `width` characters, their middle is omitted, and a last line states which units. The
// schedule must pass check_schedule.
std::string text_grid(const Schedule& schedule, int width = 160);

// The fraction of the stages' time that they spend waiting: 1 - busy / (stages x makespan). The schedule must pass
// check_schedule.
double bubble_fraction(const Schedule& schedule, const UnitCosts& costs = {});

}  // namespace shardline
