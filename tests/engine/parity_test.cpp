#include <map>

#include "tests/engine/parity_run.h"
#include "tests/catch.h"

using namespace shardline::parity;

namespace {

// One process per model and dtype, run once.
const Outcome& reference(const Point& point) {
  static std::map<std::string, Outcome> known;
  Point one = point;
  one.d = one.p = one.t = one.microbatches = one.accumulation = 1;
  one.placement = "cluster";
  const auto key = point.reference_key();
  if (!known.count(key)) known[key] = run_point(one, 10);
  return known.at(key);
}

void check_point(const Point& point) {
  INFO(point.name());
  const Difference d = compare(run_point(point, 10), reference(point));
  const Limits limits = limits_of(point.dtype);
  INFO("gradient " << d.gradient << " (" << d.worst_gradient << "), norm " << d.norm << ", loss " << d.loss << ", change "
                   << d.change << " (" << d.worst_change << ")");
  CHECK(d.gradient <= limits.gradient);
  CHECK(d.norm <= limits.norm);
  CHECK(d.loss <= limits.loss);
  CHECK(d.change <= limits.change);
}

}  // namespace

TEST_CASE("every single axis gives the run of one process", "[parity]") {
  check_point({.microbatches = 4});
  check_point({.p = 2, .microbatches = 4});
  check_point({.t = 2});
  check_point({.d = 2});
  check_point({.t = 4});
  check_point({.t = 4, .optimize = "memory"});
  check_point({.d = 2, .p = 2, .t = 2, .optimize = "memory", .microbatches = 3, .accumulation = 2, .dropout = true});
}
