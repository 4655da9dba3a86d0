// Tests the page-locked host memory of builds for CUDA. Its function is renamed here, because this build's library
// already has one with that name, for other devices.
#define locked_zeros locked_zeros_on_cuda
#include "core/device/host_memory.cpp"

#include <ATen/ops/eq.h>
#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "tests/catch.h"

namespace shardline::host_memory_test {
namespace {

using Texts = std::vector<std::string>;

Texts calls;
cudaError_t registering = cudaSuccess;

}  // namespace

TEST_CASE("page-locked buffers have exactly the size that was asked for, and all of it is zero") {
  calls.clear();
  constexpr int64_t kElements = (1 << 18) + 1;  // torch's allocator would round it up to twice as much
  {
    const at::Tensor buffer = locked_zeros(kElements, at::kFloat);
    CHECK(calls == Texts{"register 1048580"});
    CHECK(buffer.sizes() == at::IntArrayRef{kElements});
    CHECK(buffer.scalar_type() == at::kFloat);
    CHECK(buffer.eq(0).all().item<bool>());
    buffer.fill_(1);
  }
  CHECK(calls == Texts{"register 1048580", "wait", "unregister"});
  CHECK(locked_zeros(0, at::kFloat).numel() == 0);
  CHECK(calls.size() == 3);
}

TEST_CASE("a rank that ends with an exception does not wait for its device, which may be waiting for another rank") {
  calls.clear();
  const auto fail = [] {
    const at::Tensor buffer = locked_zeros(100, at::kByte);
    throw DataError("no label");
  };
  CHECK_THROWS_AS(fail(), DataError);
  CHECK(calls == Texts{"register 100"});
}

TEST_CASE("if page-locked memory cannot be allocated, the error states how much, why, and what to change") {
  using Catch::Matchers::Contains;
  calls.clear();
  registering = cudaErrorMemoryAllocation;
  CHECK_THROWS_WITH(locked_zeros(100, at::kByte),
                    Contains("cannot get 100 bytes of page-locked host memory: too much") && Contains("ulimit -l") &&
                        Contains("offload_activations"));
  registering = cudaSuccess;
  CHECK(calls == Texts{"register 100"});
}

}  // namespace shardline::host_memory_test

cudaError_t cudaHostRegister(void*, size_t bytes, unsigned flags) {
  CHECK(flags == cudaHostRegisterPortable);
  shardline::host_memory_test::calls.push_back("register " + std::to_string(bytes));
  return shardline::host_memory_test::registering;
}
cudaError_t cudaHostUnregister(void*) {
  shardline::host_memory_test::calls.emplace_back("unregister");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  shardline::host_memory_test::calls.emplace_back("wait");
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "too much";
}
