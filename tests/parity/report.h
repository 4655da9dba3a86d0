// docs/parity.md, generated from runs.
#pragma once
#include <string>
#include <vector>

#include "tests/parity/half.h"

namespace shardline::parity {

struct Measured {
  Point point;
  Difference difference;
};
struct Checked {
  std::string what, point, result;
};

struct Report {
  std::vector<Measured> matrix, fp32;
  std::vector<MeasuredHalf> half;
  std::vector<Checked> bits, faults, half_faults;
};

std::string markdown(const Report& report);

}  // namespace shardline::parity
