// The host twin of a launch: runs a kernel's blocks one after another, with the threads of a block as fibers. Kernels
// use it through core/cuda/device_code.h.
#pragma once
#include <array>
#include <cstdint>
#include <functional>

#include "core/cuda/twin/fibers.h"
#include "core/cuda/twin/shared_memory.h"

namespace shardline::twin {

constexpr int kWarp = 32;

struct Index3 {
  int64_t x = 0, y = 0, z = 0;
};

// The orders in which blocks and threads run; a kernel's results must not depend on them.
enum class Order { first_first, last_first };
extern Order order;
// If true, launches are logged (core/cuda/launch_log.h) but compute nothing, for counting at sizes that would take too
// long to run.
extern bool only_counts;

// Runs body() for each thread of each block. Throws KernelFault or Deadlock, naming the kernel.
void run_grid(const char* kernel, const Index3& grid, int threads, size_t shared_bytes,
              const std::function<void()>& body);

// ---- the running thread

int thread_index();
Index3 block_index();
Index3 grid_size();
int block_threads();
void sync_block();
void sync_warp();

// Returns what each lane of the warp passed. All lanes must pass the same kind.
enum class Exchange { sync, shuffle, address, registers };
const std::array<uint64_t, kWarp>& exchange(Exchange kind, uint64_t mine);

// Performs the copies that this thread started (SharedArray::start_copy).
void wait_for_copies();

template <class T>
SharedArray<T> take_shared(size_t& offset, int64_t count);
SharedRoom& shared_room();
template <class T>
SharedArray<T> take_shared(size_t& offset, int64_t count) {
  return shared_room().take<T>(offset, count);
}

}  // namespace shardline::twin
