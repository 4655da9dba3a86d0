// How host code starts kernels, and the record of what was started.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/cuda/device_code.h"
#include "core/cuda/launch_log.h"

namespace shardline::cuda {

struct Launch {
  const char* kernel;
  int64_t blocks_x, blocks_y = 1;
  int threads;
  size_t shared_bytes = 0;
  int64_t bytes_read = 0, bytes_written = 0;  // device memory; an element counts once for each pass over it
};

constexpr int64_t kMostBlocksX = (int64_t{1} << 31) - 1, kMostBlocksY = 65535;  // the limits of every GPU

// Starts the kernel on the stream; does nothing if there are no blocks. Throws std::invalid_argument if a block has
// more threads than the kernel declares, or if there are too many blocks (CUDA would use only the lower half of the
// number); throws std::runtime_error with CUDA's message if the launch fails.
template <int kMostThreads, class... Parameters>
void launch(const Launch& how, Stream stream, void (*kernel)(BlockOf<kMostThreads>, Parameters...),
            Parameters... parameters) {
  if (how.threads > kMostThreads)
    throw std::invalid_argument("kernel " + std::string(how.kernel) + ": blocks of " + std::to_string(how.threads) +
                                " threads, but it declares at most " + std::to_string(kMostThreads));
  if (how.blocks_x == 0 || how.blocks_y == 0) return;
  if (how.blocks_x > kMostBlocksX || how.blocks_y > kMostBlocksY)
    throw std::invalid_argument("kernel " + std::string(how.kernel) + ": " + std::to_string(how.blocks_x) + " x " +
                                std::to_string(how.blocks_y) + " blocks are more than a GPU can run");
  log_launch(how.kernel, how.bytes_read, how.bytes_written);
#ifdef __CUDACC__
  const auto check = [&](cudaError_t result) {
    if (result != cudaSuccess)
      throw std::runtime_error(std::string("kernel ") + how.kernel + ": " + cudaGetErrorString(result));
  };
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (how.shared_bytes > kWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared_bytes));
  const dim3 grid(how.blocks_x, how.blocks_y);
  kernel<<<grid, how.threads, how.shared_bytes, stream>>>(BlockOf<kMostThreads>{}, parameters...);
  check(cudaGetLastError());
#else
  twin::run_grid(how.kernel, {how.blocks_x, how.blocks_y, 1}, how.threads, how.shared_bytes,
                 [&] { kernel(BlockOf<kMostThreads>{}, parameters...); });
#endif
}

}  // namespace shardline::cuda
