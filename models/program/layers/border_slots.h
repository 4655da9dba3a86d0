// Hidden states that pass from one layer of a program to the next.
#pragma once
#include <cstdint>
#include <vector>

#include "models/program/program.h"

namespace shardline {

// A tensor of a border that holds the rows of values of the source and of the target.
struct BorderSlot {
  int64_t features = 0;
  int source = -1, target = -1;  // values

  bool holds(int value) const { return source == value || target == value; }
};

std::vector<BorderSlot> border_slots(const Program& program, const std::vector<int>& border);

}  // namespace shardline
