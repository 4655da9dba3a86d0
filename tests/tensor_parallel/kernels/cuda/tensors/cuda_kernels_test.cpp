// The table of CUDA kernels gives the same results as our loops on CPUs.
#include "tensor_parallel/kernels/cuda/cuda_kernels.h"

#include <ATen/ops/empty.h>

#include "tensor_parallel/products/products.h"
#include "tests/tensor_parallel/kernels/cuda/tensors/kernel_checks.h"

#include "tests/catch.h"

namespace shardline::cuda_kernels_test {
namespace {

// Our oneDNN cannot be loaded into a program with an address sanitizer.
const KernelTable& table() {
  use_products(ProductLibrary::aten);
  return cuda::kernel_table();
}

}  // namespace

TEST_CASE("CUDA kernels of rows equal the loops of CPUs") {
  testing::check_row_kernels(table(), at::kCPU, 6, 20);
}

TEST_CASE("CUDA kernels of heads equal the loops of CPUs") {
  testing::check_head_kernels(table(), at::kCPU, 37, 16, 33);
  testing::check_head_kernels(table(), at::kCPU, 333, 16, 33);
}

TEST_CASE("CUDA kernels accept empty tensors") {
  const at::Tensor x = at::empty({0, 8}), weight = at::empty({8});
  CHECK(std::get<0>(table().layer_norm_forward(x, weight, weight, 1e-5)).numel() == 0);
  CHECK(table().bias_activation_forward(x, weight, Activation::gelu).numel() == 0);
  const at::Tensor q = at::empty({0, 2, 5, 8});
  CHECK(std::get<0>(table().attention_forward(q, q, q, 1, {}, {})).numel() == 0);
}

}  // namespace shardline::cuda_kernels_test
