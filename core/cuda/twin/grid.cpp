#include "core/cuda/twin/grid.h"

#include <mutex>
#include <optional>

namespace shardline::twin {
namespace {

// Two buffers, so that a lane that is one exchange ahead does not overwrite what other lanes still read.
struct Warp {
  std::array<uint64_t, kWarp> passed[2] = {};
  Exchange kind = Exchange::sync;
  int arrived = 0;
  uint64_t exchanges = 0;
};

struct Block {
  Index3 grid, index;
  int threads = 0;
  int arrived = 0;
  uint64_t barriers = 0;
  std::vector<Warp> warps;
  std::vector<std::vector<Copy>> copies;  // by thread: the copies it has started since it last waited
  std::optional<SharedRoom> shared;
};

std::mutex one_grid;  // only one grid runs at a time, because ranks may be threads
Block block;
Fibers fibers;

Warp& warp_of_this_thread() {
  return block.warps[fibers.current() / kWarp];
}

}  // namespace

Order order = Order::first_first;
bool only_counts = false;

void run_grid(const char* kernel, const Index3& grid, int threads, size_t shared_bytes,
              const std::function<void()>& body) {
  if (only_counts) return;
  const std::scoped_lock lock(one_grid);
  const auto fault = [&](const std::string& what) {
    return std::string(kernel) + ", block " + std::to_string(block.index.x) + " " + std::to_string(block.index.y) +
           " " + std::to_string(block.index.z) + ": " + what;
  };
  block.grid = grid;
  block.threads = threads;
  block.shared.emplace(shared_bytes);
  const int64_t blocks = grid.x * grid.y * grid.z;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t at = order == Order::first_first ? i : blocks - 1 - i;
    block.index = {at % grid.x, at / grid.x % grid.y, at / (grid.x * grid.y)};
    block.arrived = 0;
    block.barriers = 0;
    block.warps.assign((threads + kWarp - 1) / kWarp, {});
    block.copies.assign(threads, {});
    block.shared->clear();
    try {
      fibers.run(threads, order == Order::last_first, [&](int) { body(); });
      for (const auto& copies : block.copies)
        if (!copies.empty()) throw KernelFault("a thread returned before a copy that it started had arrived");
    } catch (const Deadlock& error) {
      throw Deadlock(fault(error.what()));
    } catch (const KernelFault& error) {
      throw KernelFault(fault(error.what()));
    }
  }
}

int thread_index() {
  return fibers.current();
}
Index3 block_index() {
  return block.index;
}
Index3 grid_size() {
  return block.grid;
}
int block_threads() {
  return block.threads;
}

SharedRoom& shared_room() {
  return *block.shared;
}

Access access_of_this_thread() {
  const int thread = fibers.current();
  return {thread, thread / kWarp, block.barriers, block.warps[thread / kWarp].exchanges};
}

void start_copy(const Copy& copy) {
  block.copies[fibers.current()].push_back(copy);
}
void wait_for_copies() {
  auto& copies = block.copies[fibers.current()];
  for (const Copy& copy : copies) copy.finish();
  copies.clear();
}

// Every thread of the block must call it: otherwise the others wait forever.
void sync_block() {
  if (++block.arrived < block.threads) return fibers.wait_for_change(block.barriers);
  block.arrived = 0;
  ++block.barriers;
}

void sync_warp() {
  exchange(Exchange::sync, 0);
}

const std::array<uint64_t, kWarp>& exchange(Exchange kind, uint64_t mine) {
  Warp& warp = warp_of_this_thread();
  auto& passed = warp.passed[warp.exchanges % 2];
  if (warp.arrived == 0) warp.kind = kind;
  if (warp.kind != kind) throw KernelFault("the lanes of a warp meet at different instructions");
  passed[fibers.current() % kWarp] = mine;
  if (++warp.arrived < kWarp) {
    fibers.wait_for_change(warp.exchanges);
  } else {
    warp.arrived = 0;
    ++warp.exchanges;
  }
  return passed;
}

}  // namespace shardline::twin
