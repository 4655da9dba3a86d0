// Compares half precision on a layout with one process in fp32: its losses, first gradient and norm may differ by a
// little more than twice as much as those of one process in half precision. The norm may differ by a tenth of the
// gradient's difference more, because a difference of norms can be small by chance: it is only the component of the
// gradient's rounding errors along the gradient.
#pragma once
#include <string>

#include "tests/parity/run.h"

namespace shardline::parity {

struct HalfDistance {
  double gradient = 0;  // relative L2 difference of the whole gradient of step 1
  double norm = 0;      // relative
  double loss = 0;      // largest of all steps
  double copies = 0;    // Outcome::copies_differ; must be 0

  // The quantities that are too far from fp32, given that one process differs by `one`: "gradient, loss"; empty if
  // there are none.
  std::string exceeds(const HalfDistance& one) const;
};

HalfDistance half_distance(const Outcome& outcome, const Outcome& exact);

// The measurements of a point in half precision.
struct MeasuredHalf {
  Point point;
  HalfDistance layout, one;
};
MeasuredHalf measure_half(const Point& point, const Tampering& tampering = {});

}  // namespace shardline::parity
