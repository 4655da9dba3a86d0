// Transfers tensors of devices over Open MPI, as GPUs do if NCCL cannot be used: through host memory. Every rank has an
// accelerator without hardware.
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/core/comm/communicator_suite.h"
#include "tests/fake_device/fake_device.h"
#include "tests/fake_nccl/staging_communicator.h"
#include "tests/mpi/mpi_main.h"
#include "tests/parity/run.h"

#include "tests/catch.h"

using namespace shardline;

namespace {

using Faults = std::vector<std::string>;

const bool kInstalled = [] {
  fake::install(1);
  return true;
}();

}  // namespace

TEST_CASE("mpi: the communicator suite passes with tensors of a device") {
  REQUIRE(kInstalled);
  testing::StagingCommunicator staged(testing::mpi_test_world().comm, fake::device());
  for (const auto& behaviour : testing::comm_behaviours()) {
    CAPTURE(behaviour.name);
    CHECK_NOTHROW(behaviour.check(staged));
    CHECK(fake::take_faults() == Faults{});
  }
}

TEST_CASE("mpi: ranks with tensors on devices have the bits of ranks on CPUs") {
  use_kernels(KernelLibrary::aten);
  use_products(ProductLibrary::aten);
  const CommunicatorPtr world = testing::mpi_test_world().comm;
  for (const parity::Point& point :
       {parity::Point{.p = 2, .dtype = "float32", .microbatches = 2, .dropout = true},
        parity::Point{.t = 2, .dtype = "float32", .microbatches = 2, .dropout = true, .shape = "2 tokens"},
        parity::Point{.d = 2, .dtype = "float32", .microbatches = 2, .sharding = "ZeRO-3"}}) {
    CAPTURE(point.name());
    fake::take_faults();
    const parity::Outcome outcome = run_point_on(point, world, {}, {fake::device()});
    CHECK(fake::take_faults() == Faults{});
    if (world->rank() == 0) {  // the others wait at the barrier
      const parity::Outcome cpus = run_point(point);
      CHECK(outcome.losses == cpus.losses);
      CHECK(bit_equal(outcome, cpus));
    }
    world->barrier();
  }
  use_kernels(KernelLibrary::automatic);
  use_products(ProductLibrary::automatic);
}
