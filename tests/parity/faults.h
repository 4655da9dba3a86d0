// Mistakes that are easily made in a trainer like this one, each planted from outside into a point that must see it.
#pragma once
#include <string>
#include <vector>

#include "tests/parity/run.h"

namespace shardline::parity {

struct Fault {
  std::string what;
  Point point;
  Tampering tampering;
};

std::vector<Fault> planted_faults();

}  // namespace shardline::parity
