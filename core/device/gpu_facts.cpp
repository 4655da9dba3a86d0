#include "core/device/gpu_facts.h"

#ifdef SHARDLINE_CUDA
#include <cuda_runtime.h>

#include <cstdio>
#endif

namespace shardline {

#ifndef SHARDLINE_CUDA

std::optional<GpuFacts> gpu_facts(int) {
  return std::nullopt;
}

std::optional<GpuSoftware> gpu_software() {
  return std::nullopt;
}

GpuLink gpu_link(int, int) {
  return GpuLink::host_memory;
}

#else

namespace {

double attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  cudaGetLastError();  // otherwise the runtime would report it again after the next kernel
  return 0;
}

}  // namespace

std::optional<GpuFacts> gpu_facts(int device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();  // as above
    return std::nullopt;
  }
  constexpr double kKilohertz = 1e3;
  const double memory_bytes = properties.totalGlobalMem;
  const double memory_clock = kKilohertz * attribute(cudaDevAttrMemoryClockRate, device);
  const double bus_bytes = attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8;
  std::string uuid;
  for (const unsigned char byte : properties.uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    uuid += digits;
  }
  return GpuFacts{.name = properties.name,
                  .memory_bytes = memory_bytes,
                  .memory_bytes_per_second = 2 * memory_clock * bus_bytes,  // two transfers per clock cycle
                  .clock_hz = kKilohertz * attribute(cudaDevAttrClockRate, device),
                  .multiprocessors = properties.multiProcessorCount,
                  .capability = 10 * properties.major + properties.minor,
                  .uuid = uuid};
}

std::optional<GpuSoftware> gpu_software() {
  GpuSoftware software{.code = {SHARDLINE_GPU_CODE}, .ptx = {SHARDLINE_GPU_PTX}};
  cudaRuntimeGetVersion(&software.runtime);
  cudaDriverGetVersion(&software.driver);
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    software.error = cudaGetErrorString(error);
    cudaGetLastError();
  }
  return software;
}

GpuLink gpu_link(int from, int to) {
  int direct = 0, atomics = 0;
  const bool known = cudaDeviceCanAccessPeer(&direct, from, to) == cudaSuccess;
  if (!known) cudaGetLastError();
  if (!known || direct == 0) return GpuLink::host_memory;
  const bool answered =
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) == cudaSuccess;
  if (!answered) cudaGetLastError();
  return answered && atomics != 0 ? GpuLink::nvlink : GpuLink::pcie;
}

#endif

}  // namespace shardline
