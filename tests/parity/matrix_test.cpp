#include "tests/parity/matrix.h"

#include "tests/parity/axes.h"

#include "tests/catch.h"

using namespace shardline::parity;

namespace {

void check_points(const std::vector<Point>& points) {
  for (const auto& point : points) {
    const Difference d = measure(point);
    INFO(point.name());
    INFO("gradient " << d.gradient << " (" << d.worst_gradient << "), norm " << d.norm << ", loss " << d.loss
                     << ", change " << d.change << " (" << d.worst_change << "), copies " << d.copies);
    CHECK(d.exceeds(limits_of(point.dtype)) == "");
  }
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
}

TEST_CASE("every pair of axis values gives the run of one process, float64", "[parity]") {
  check_points(pair_points());
}
TEST_CASE("a sample gives the run of one process, fp32", "[parity][fp32]") {
  check_points(fp32_points());
}

// The rest of the matrix, on demand: parity_tests "[matrix]"
TEST_CASE("every axis value alone gives the run of one process, float64", "[.][matrix]") {
  check_points(single_points());
}
TEST_CASE("P, T, D >= 2, dropout and uneven sizes together give the run of one process, float64", "[.][matrix]") {
  check_points(deep_points());
}
