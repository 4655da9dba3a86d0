// Mistakes that are easily made in a trainer like this one. Each is injected from outside into a point that must detect
// it.
#pragma once
#include <string>
#include <vector>

#include "tests/parity/run.h"

namespace shardline::parity {

struct Fault {
  std::string what;
  Point point;
  Tampering tampering;
  bool fine = false;  // hidden by the rounding of half precision
};

std::vector<Fault> planted_faults();
// The faults that are large enough to be visible in bf16, and one that only fp16 has.
std::vector<Fault> planted_half_faults();

}  // namespace shardline::parity
