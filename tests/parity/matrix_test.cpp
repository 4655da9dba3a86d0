#include "tests/parity/matrix.h"

#include <cstdlib>
#include <fstream>

#include "tests/parity/axes.h"
#include "tests/parity/bit_equality.h"
#include "tests/parity/faults.h"
#include "tests/parity/report.h"

#include "tests/catch.h"

using namespace shardline::parity;

namespace {

std::vector<Measured> check_points(const std::vector<Point>& points) {
  std::vector<Measured> results;
  for (const auto& point : points) {
    const Difference d = measure(point);
    INFO(point.name());
    INFO("gradient " << d.gradient << " (" << d.worst_gradient << "), norm " << d.norm << ", loss " << d.loss
                     << ", change " << d.change << " (" << d.worst_change << "), copies " << d.copies);
    CHECK(d.exceeds(limits_of(point.dtype)) == "");
    results.push_back({point, d});
  }
  return results;
}

std::vector<Checked> check_twins() {
  std::vector<Checked> results;
  for (const auto& twins : equal_twins()) {
    INFO(twins.what);
    const bool same = bit_equal(run_point(twins.one), run_point(twins.other));
    CHECK(same);
    results.push_back({twins.what, twins.other.name(), same ? "equal" : "differ"});
  }
  return results;
}

std::vector<Checked> check_faults() {
  std::vector<Checked> results;
  for (const auto& fault : planted_faults()) {
    INFO(fault.what << ": " << fault.point.name());
    const Limits limits = limits_of(fault.point.dtype);
    CHECK(measure(fault.point).exceeds(limits) == "");
    const std::string caught = measure(fault.point, fault.tampering).exceeds(limits);
    CHECK(caught != "");
    results.push_back({fault.what, fault.point.name(), caught});
  }
  return results;
}

}  // namespace

TEST_CASE("the points cover every pair of axis values", "[parity]") {
  CHECK(missing_pairs(matrix_axes(), pair_points()).empty());
  CHECK(matrix_points().size() >= 120);
  CHECK(fp32_points().size() >= 12);
  int deep = 0;
  for (const auto& point : deep_points())
    deep += point.d >= 2 && point.p >= 2 && point.t >= 2 && point.dropout && point.short_batch;
  CHECK(deep >= 30);
  CHECK(planted_faults().size() >= 10);
}

TEST_CASE("every pair of axis values gives the run of one process, float64", "[parity]") {
  check_points(pair_points());
}
TEST_CASE("a sample gives the run of one process, fp32", "[parity][fp32]") {
  check_points(fp32_points());
}
TEST_CASE("runs that must agree in every bit do", "[parity][bits]") {
  check_twins();
}
TEST_CASE("planted faults are caught", "[parity][faults]") {
  check_faults();
}

// The rest of the matrix, on demand: parity_tests "[matrix]"
TEST_CASE("every axis value alone gives the run of one process, float64", "[.][matrix]") {
  check_points(single_points());
}
TEST_CASE("sizes that nothing divides on ranks of every kind give the run of one process, float64",
          "[.][matrix][deep]") {
  check_points(deep_points());
}

// All of it, for the numbers: SHARDLINE_WRITE_DOCS=1 parity_tests "[docs]"
TEST_CASE("docs/parity.md", "[.][docs]") {
  const std::string text = markdown({.matrix = check_points(matrix_points()),
                                     .fp32 = check_points(fp32_points()),
                                     .bits = check_twins(),
                                     .faults = check_faults()});
  if (std::getenv("SHARDLINE_WRITE_DOCS")) std::ofstream(SHARDLINE_PARITY_DOCS) << text;
}
