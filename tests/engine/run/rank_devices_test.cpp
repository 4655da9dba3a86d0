#include "engine/run/rank_devices.h"

#include <c10/core/AllocatorConfig.h>

#include <cstdlib>
#include <sstream>

#include "core/error.h"
#include "engine/run/ranks.h"

#include "tests/catch.h"

namespace shardline::rank_devices_test {
namespace {

using Catch::Contains;

TEST_CASE("ranks have their own devices if no two names of devices are equal") {
  CHECK(each_has_its_own({"a GPU-1", "a GPU-2", "b GPU-1"}));
  CHECK(!each_has_its_own({"a GPU-1", "a GPU-2", "a GPU-1"}));
  CHECK(!each_has_its_own({"a cpu", "a cpu"}));
  CHECK(!each_has_its_own({"a cpu", "b cpu"}));
  CHECK_THROWS_WITH(each_has_its_own({"a GPU-1", "b cpu", "c GPU-1"}),
                    Contains("rank 1 (b cpu) finds no GPU, but rank 0 (a GPU-1) does"));
}

TEST_CASE("a GPU that is too old or full is refused by name") {
  GpuFacts gpu{.name = "NVIDIA H100", .memory_bytes = 80.0 * (1 << 30), .capability = 90};
  const GpuSoftware software{.code = {80, 90}, .ptx = {90}};
  const std::string which = "GPU 3 of host a (NVIDIA H100)";
  CHECK_NOTHROW(check_gpu(which, gpu, software));
  gpu.capability = 86;
  CHECK_NOTHROW(check_gpu(which, gpu, software));
  CHECK_THROWS_WITH(check_gpu(which, gpu, {.code = {90}, .ptx = {90}}),
                    Contains("compute capability 8.6, but this build has kernels for 9.0, PTX for 9.0 and newer;") &&
                        Contains("or build for it with -DCMAKE_CUDA_ARCHITECTURES=86"));
  gpu.capability = 70;
  CHECK_THROWS_WITH(
      check_gpu(which, gpu, software),
      Contains("compute capability 7.0, but this build has kernels for 8.0, 9.0, PTX for 9.0 and newer") &&
          Contains("no build supports GPUs older than 8.0") && !Contains("CMAKE_CUDA_ARCHITECTURES"));
  // Code is for one major version, PTX for all newer GPUs.
  gpu.capability = 90;
  CHECK_THROWS(check_gpu(which, gpu, {.code = {80, 120}, .ptx = {120}}));
  CHECK_NOTHROW(check_gpu(which, gpu, {.code = {}, .ptx = {80}}));
  gpu.capability = 100;
  CHECK_THROWS(check_gpu(which, gpu, {.code = {80, 90}, .ptx = {}}));
  CHECK_NOTHROW(check_gpu(which, gpu, software));
  CHECK_NOTHROW(check_device_memory(which, gpu.memory_bytes, gpu.memory_bytes));
  CHECK_THROWS_WITH(check_device_memory(which, 2e8, gpu.memory_bytes),
                    Contains("GPU 3 of host a (NVIDIA H100) has 0.2 of 80 GiB free: other processes use it"));
}

TEST_CASE("pipelines set what CUDA and NCCL read when they start, unless the user has") {
  Config config;
  config.smp.pipeline_parallel_degree = 2;
  setenv("NCCL_RUNTIME_CONNECT", "1", true);
  prepare_for_pipelines(config);
  CHECK(std::string(getenv("CUDA_MODULE_LOADING")) == "EAGER");
  CHECK(std::string(getenv("NCCL_RUNTIME_CONNECT")) == "1");
  CHECK(std::string(getenv("PYTORCH_ALLOC_CONF")) == "expandable_segments:True");
  CHECK(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments());  // torch reads it later
  unsetenv("NCCL_RUNTIME_CONNECT");
}

TEST_CASE("what CUDA reads when it starts is set before ranks start, and with them MPI, which may start CUDA") {
  Config config;
  config.smp.pipeline_parallel_degree = 2;
  config.runtime.communicator = CommunicatorChoice::local;
  unsetenv("CUDA_MODULE_LOADING");
  std::ostringstream out;
  CHECK_THROWS_WITH(run_on_ranks(config, out, {}, [](RankContext&) {}), Contains("\"local\" means one rank"));
  REQUIRE(getenv("CUDA_MODULE_LOADING") != nullptr);
  CHECK(std::string(getenv("CUDA_MODULE_LOADING")) == "EAGER");
}

TEST_CASE("the error about a missing GPU states a reason that the user can correct") {
  using Software = GpuSoftware;
  CHECK_THAT(no_gpu_reason(std::nullopt, nullptr), Contains("no CUDA; configure it with -DSHARDLINE_CUDA=ON"));
  CHECK_THAT(no_gpu_reason(Software{.runtime = 13000, .error = "no device"}, ""),
             Contains("no NVIDIA driver was found"));
  CHECK_THAT(
      no_gpu_reason(Software{.runtime = 13000, .driver = 12040, .error = "insufficient"}, nullptr),
      Contains("supports CUDA 12.4 at most, and this build uses 13.0; update the driver, or build with LibTorch") &&
          Contains("for CUDA 12 (docs/gpus.md"));
  // Drivers run later minor versions of their major version.
  CHECK_THAT(no_gpu_reason(Software{.runtime = 13020, .driver = 13000, .error = "no CUDA-capable device"}, nullptr),
             Contains("CUDA finds no GPU (no CUDA-capable device); nvidia-smi"));
  CHECK_THAT(no_gpu_reason(Software{.runtime = 13000, .driver = 13000, .error = "no CUDA-capable device"}, "7"),
             Contains("no GPU (no CUDA-capable device) with CUDA_VISIBLE_DEVICES=\"7\"; unset it"));
}

}  // namespace
}  // namespace shardline::rank_devices_test
