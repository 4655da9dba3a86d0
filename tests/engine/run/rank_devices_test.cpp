#include "engine/run/rank_devices.h"

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::rank_devices_test {
namespace {

using Catch::Contains;

TEST_CASE("ranks have devices of their own where no two names are equal") {
  CHECK(each_has_its_own({"a GPU-1", "a GPU-2", "b GPU-1"}));
  CHECK(!each_has_its_own({"a GPU-1", "a GPU-2", "a GPU-1"}));
  CHECK(!each_has_its_own({"a cpu", "a cpu"}));
  CHECK(!each_has_its_own({"a cpu", "b cpu"}));
  CHECK_THROWS_WITH(each_has_its_own({"a GPU-1", "b cpu", "c GPU-1"}),
                    Contains("rank 1 (b cpu) finds no GPU, but rank 0 (a GPU-1) does"));
}

TEST_CASE("a GPU that is too old or full is refused by name") {
  GpuFacts gpu{.name = "NVIDIA H100", .memory_bytes = 80.0 * (1 << 30), .capability = 90};
  CHECK_NOTHROW(check_gpu(3, gpu, gpu.memory_bytes));
  CHECK_THROWS_WITH(check_gpu(3, gpu, 2e8),
                    Contains("GPU 3 of host ") && Contains("(NVIDIA H100) has 0.2 of 80 GiB free"));
  gpu.capability = 75;
  CHECK_THROWS_WITH(check_gpu(3, gpu, gpu.memory_bytes),
                    Contains("compute capability 7.5; this build has kernels for 8.0 and newer"));
}

}  // namespace
}  // namespace shardline::rank_devices_test
