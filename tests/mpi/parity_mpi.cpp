// Points of the layout matrix on real ranks: the run of one process, and the same bits as ranks that are threads.
#include <ATen/ops/zeros.h>

#include "tests/mpi/mpi_main.h"
#include "tests/parity/matrix.h"

#include "tests/catch.h"

using namespace shardline;
using namespace shardline::parity;

TEST_CASE("mpi: ranks that are processes give the run of one process and of threads") {
  const CommunicatorPtr world = testing::mpi_test_world().comm;
  for (const auto& point : real_rank_points(world->size())) {
    const Outcome outcome = run_point_on(point, world);
    if (world->rank() == 0) {  // the others have the same, as `copies` says, and wait at the barrier
      INFO(point.name());
      CHECK(compare(outcome, reference(point), limits_of(point.dtype)).exceeds(limits_of(point.dtype)) == "");
      CHECK(bit_equal(outcome, run_point(point)));
    }
    world->barrier();
  }
}
