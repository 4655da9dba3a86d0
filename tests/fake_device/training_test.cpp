// Whole training runs on the fake device: the same numbers as on CPUs with the same operators, without a race.
#include <ATen/core/Tensor.h>

#include "core/error.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/fake_device/fake_device.h"
#include "tests/parity/run.h"

#include "tests/catch.h"

namespace shardline::training_test {
namespace {

using parity::Outcome;
using parity::Point;

// CPUs compute with the operators that the device has.
class SameOperators {
 public:
  SameOperators() {
    use_kernels(KernelLibrary::aten);
    use_products(ProductLibrary::aten);
  }
  ~SameOperators() {
    use_kernels(KernelLibrary::automatic);
    use_products(ProductLibrary::automatic);
  }
};

Outcome on_fake_device(const Point& point) {
  fake::take_faults();
  const Outcome outcome = run_point(point, {}, {.device = [](int) { return fake::device(); }});
  CHECK(fake::take_faults() == std::vector<std::string>{});
  return outcome;
}

void check_equal(const Point& point) {
  CAPTURE(point.name());
  const SameOperators same;
  const Outcome cpu = run_point(point), device = on_fake_device(point);
  CHECK(device.losses == cpu.losses);
  CHECK(device.norm == cpu.norm);
  CHECK(bit_equal(device, cpu));
}

}  // namespace

TEST_CASE("a run on the device has the bits of one on a CPU") {
  Point point{.dtype = "float32", .microbatches = 3, .dropout = true};
  check_equal(point);
}

}  // namespace shardline::training_test
