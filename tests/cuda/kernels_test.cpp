// An accelerator's kernels give the same results as our CPU loops, for small sizes and for sizes of real models.
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "core/device/accelerator.h"
#include "tests/tensor_parallel/kernels/cuda/tensors/kernel_checks.h"
#include "tests/tensor_parallel/products/odd_products.h"

#include "tests/catch.h"

namespace shardline::kernels_test {
namespace {

const KernelTable& table() {
  return kernels_for(at::empty({0}, at::TensorOptions(accelerator(0))));
}

}  // namespace

TEST_CASE("row kernels give the results of the CPU loops", "[kernels]") {
  const c10::DeviceGuard on_device(accelerator(0));
  testing::check_row_kernels(table(), accelerator(0), 6, 20);
  testing::check_row_kernels(table(), accelerator(0), 513, 1600);
}

TEST_CASE("head kernels give the results of the CPU loops", "[kernels]") {
  const c10::DeviceGuard on_device(accelerator(0));
  testing::check_head_kernels(table(), accelerator(0), 37, 16, 33);
  testing::check_head_kernels(table(), accelerator(0), 200, 64, 50257);
  testing::check_head_kernels(table(), accelerator(0), 333, 64, 515);
  testing::check_head_kernels(table(), accelerator(0), 130, 256, 50400);
}

TEST_CASE("products are correct for a vocabulary whose size is not a multiple of 8", "[kernels]") {
  const c10::DeviceGuard on_device(accelerator(0));
  set_gpu_products(false);
  testing::check_odd_products(accelerator(0), 64, 256, 50257, 1e-4);
}

}  // namespace shardline::kernels_test
