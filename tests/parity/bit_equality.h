// Pairs of fp32 runs that must agree in every bit: gradients of step 1, norm, losses and final parameters.
#pragma once
#include <string>
#include <vector>

#include "tests/parity/point.h"

namespace shardline::parity {

struct Twins {
  std::string what;
  Point one, other;
};
std::vector<Twins> equal_twins();

}  // namespace shardline::parity
