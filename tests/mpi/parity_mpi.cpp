// Points of the layout matrix on real ranks: they must agree with one process, and have the same bits as ranks that are
// threads.
#include "tests/mpi/mpi_main.h"
#include "tests/parity/matrix.h"

#include "tests/catch.h"

using namespace shardline;
using namespace shardline::parity;

namespace {

// The points that need as many ranks as this world has; there must be at least one.
std::vector<Point> for_these_ranks(const std::vector<Point>& points) {
  const auto those = with_world(points, testing::mpi_test_world().comm->size());
  REQUIRE(!those.empty());
  return those;
}

void check_on_real_ranks(const std::vector<Point>& points) {
  const CommunicatorPtr world = testing::mpi_test_world().comm;
  for (const auto& point : for_these_ranks(points)) {
    const Outcome outcome = run_point_on(point, world);
    if (world->rank() == 0) {  // the others have the same result, as `copies` shows, and wait at the barrier
      INFO(point.name());
      CHECK(compare(outcome, reference(point), limits_of(point)).exceeds(limits_of(point)) == "");
      CHECK(bit_equal(outcome, run_point(point)));
    }
    world->barrier();
  }
}

}  // namespace

TEST_CASE("mpi: ranks that are processes give the run of one process and of threads, float64") {
  check_on_real_ranks(pair_points());
}
TEST_CASE("mpi: ranks that are processes give the run of one process and of threads on tasks with labels, float64") {
  check_on_real_ranks(some_task_points());
}
TEST_CASE("mpi: ranks that are processes give the run of one process and of threads, fp32") {
  check_on_real_ranks(fp32_points());
}
TEST_CASE("mpi: ranks that are processes give the bits of threads in half precision") {
  const CommunicatorPtr world = testing::mpi_test_world().comm;
  const auto points = for_these_ranks(half_points());
  for (size_t i = 0; i < points.size(); i += 3) {
    const Outcome outcome = run_point_on(points[i], world);
    if (world->rank() == 0) {
      INFO(points[i].name());
      CHECK(bit_equal(outcome, run_point(points[i])));
    }
    world->barrier();
  }
}
// The other points, on demand: mpi_parity_tests "[matrix]"
TEST_CASE("mpi: the rest of the matrix gives the run of one process and of threads, float64", "[.][matrix]") {
  std::vector<Point> rest;  // few worlds have points of every list
  for (const auto& more : {single_points(), deep_points(), grid_points(), choice_points()})
    rest.insert(rest.end(), more.begin(), more.end());
  check_on_real_ranks(rest);
}
