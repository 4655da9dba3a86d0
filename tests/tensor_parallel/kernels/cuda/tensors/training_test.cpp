// A training run on the device without hardware, with our kernels for everything that has one, trains as CPUs do.
#include "core/comm/local_communicator.h"
#include "optim/update/cuda/cuda_updates.h"
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/fake_device/fake_device.h"
#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::training_test {
namespace {

class OurKernels {
 public:
  OurKernels() {
    use_products(ProductLibrary::aten);
    use_table(fake::device().type(), &cuda::kernel_table());
    use_updates(fake::device().type(), &cuda::updates());
  }
  ~OurKernels() {
    use_products(ProductLibrary::automatic);
    use_table(fake::device().type(), nullptr);
    use_updates(fake::device().type(), nullptr);
  }
};

}  // namespace

TEST_CASE("a run with the kernels of GPUs has the masks, losses and gradients of one on CPUs") {
  const OurKernels kernels;
  const parity::Point point{.dtype = "float32", .dropout = true, .shape = "1 head", .global_batch = 2};
  const cuda::LaunchLog log;
  const parity::Outcome cpu = run_point(point);
  const parity::Outcome device = run_point_on(point, make_local_world(), {}, {fake::device()});
  CHECK(fake::take_faults() == std::vector<std::string>{});
  REQUIRE(device.losses.size() == cpu.losses.size());
  for (size_t i = 0; i < cpu.losses.size(); ++i) CHECK(device.losses[i] == Approx(cpu.losses[i]).epsilon(1e-5));
  CHECK(device.norm == Approx(cpu.norm).epsilon(1e-5));
}

}  // namespace shardline::training_test
