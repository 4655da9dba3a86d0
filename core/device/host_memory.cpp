#include "core/device/host_memory.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

#include <cstring>
#include <exception>

#include "core/device/accelerator.h"
#include "core/error.h"

#ifdef SHARDLINE_CUDA
#include <cuda_runtime.h>
#endif

namespace shardline {

#ifndef SHARDLINE_CUDA

at::Tensor locked_zeros(int64_t elements, at::ScalarType type) {
  return at::zeros({elements}, at::TensorOptions(type).pinned_memory(true));
}

#else

namespace {

[[noreturn]] void fail(size_t bytes, const char* reason) {
  throw RunError(cat("cannot get ", bytes, " bytes of page-locked host memory: ", reason,
                     "; allow more (ulimit -l, the memory limit of the job), or offload less "
                     "(smp_options.offload_optimizer_states, offload_activations)"));
}

}  // namespace

at::Tensor locked_zeros(int64_t elements, at::ScalarType type) {
  const size_t bytes = elements * c10::elementSize(type);
  if (bytes == 0) return at::zeros({0}, type);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(bytes, std::strerror(errno));
  if (const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable); error != cudaSuccess) {
    munmap(memory, bytes);
    fail(bytes, cudaGetErrorString(error));
  }
  const auto release = [bytes](void* locked) {
    // A copy may still be running. If an exception ends the rank, the device may be in a receive whose message never
    // comes, and waiting for it would hide the error. So the memory is kept until the process ends.
    if (std::uncaught_exceptions() > 0) return;
    const HostWait wait("copies of host memory that is freed");
    cudaDeviceSynchronize();
    cudaHostUnregister(locked);
    munmap(locked, bytes);
  };
  return at::from_blob(memory, {elements}, release, at::TensorOptions(type));
}

#endif

}  // namespace shardline
