#include "core/memory/caching_allocator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace shardline::caching_allocator_test {
namespace {

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::kByte);
}
int64_t live_in(MemoryClass memory) {
  return memory_totals().now[static_cast<size_t>(memory)];
}

}  // namespace

TEST_CASE("tensors are counted by class, whichever thread frees them, and blocks are reused") {
  use_caching_allocator();
  const MemoryTotals before = memory_totals();
  const void* first = nullptr;
  {
    const MemoryScope scope(MemoryClass::activations);
    auto kept = bytes(300000);
    CHECK(reinterpret_cast<uintptr_t>(kept.data_ptr()) % 64 == 0);
    CHECK(live_in(MemoryClass::activations) == before.now[3] + 300000);
    {
      const MemoryScope inner(MemoryClass::weights);
      const auto weight = bytes(70);
      CHECK(live_in(MemoryClass::weights) == before.now[0] + 70);
    }
    CHECK(live_in(MemoryClass::weights) == before.now[0]);
    first = kept.data_ptr();
    std::thread([moved = std::move(kept)] {}).join();
  }
  const MemoryTotals after = memory_totals();
  CHECK(after.live == before.live);
  CHECK(after.peak_live >= before.live + 300070);
  CHECK(after.cached >= 300000);
  CHECK(bytes(299000).data_ptr() == first);
  CHECK(bytes(0).numel() == 0);
}

TEST_CASE("cached memory is returned to the system on request") {
  use_caching_allocator();
  bytes(5000000);
  const int64_t cached = memory_totals().cached;
  CHECK(cached >= 5000000);
  CHECK(trim_memory() == cached);
  CHECK(memory_totals().cached == 0);
  CHECK(trim_memory() == 0);
}

TEST_CASE("steps of varying lengths take no more memory than the longest step") {
  use_caching_allocator();
  trim_memory();
  const auto held_in_step = [](int64_t length) {
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 40; ++i) kept.push_back(bytes(length * 3072));
    return memory_totals();
  };
  const auto mapped_after = [&](int64_t length) {
    const MemoryTotals in_step = held_in_step(length);
    return std::max(in_step.live + in_step.cached, memory_totals().live + memory_totals().cached);
  };
  int64_t most = 0;
  for (const int64_t length : {4000, 4400, 4900, 5500, 3900, 6000}) most = std::max(most, mapped_after(length));
  const int64_t longest = memory_totals().live + 40 * 6000 * 3072;
  CHECK(most < longest * 5 / 4);  // blocks are rounded up to an eighth more

  // A shorter step uses the blocks of the longer one.
  const int64_t blocks = memory_totals().new_blocks;
  held_in_step(5000);
  CHECK(memory_totals().new_blocks <= blocks + 4);  // a few have room to spare
}

TEST_CASE("cached memory is released before an allocation above the cap is refused, and the error states the totals") {
  use_caching_allocator();
  trim_memory();
  set_memory_cap(memory_totals().live + 4000000);
  {
    const MemoryScope scope(MemoryClass::gradients);
    const auto held = bytes(1000000);
    bytes(2000000);                     // freed into the cache ...
    const auto other = bytes(2500000);  // ... which makes room for another size
    std::string message;
    try {
      bytes(2000000);
    } catch (const HostMemoryError& error) {
      message = error.what();
    }
    CHECK_THAT(message, Catch::Contains("another 2000000 bytes (gradients)") && Catch::Contains("gradients 3500000"));
    CHECK(live_in(MemoryClass::gradients) == 3500000);
  }
  set_memory_cap(0);
  CHECK(bytes(9000000).numel() == 9000000);
}

TEST_CASE("under the cap, a cached block is reused if a second one would not fit") {
  use_caching_allocator();
  trim_memory();
  set_memory_cap(memory_totals().live + 5000000);
  const void* first = bytes(3000000).data_ptr();  // cached now
  const int64_t blocks = memory_totals().new_blocks;
  CHECK(bytes(3000000).data_ptr() == first);
  CHECK(memory_totals().new_blocks == blocks);

  // A lower cap also rules out the cached block, which is returned to the system.
  set_memory_cap(memory_totals().live + 2000000);
  CHECK_THROWS_AS(bytes(3000000), HostMemoryError);
  CHECK(memory_totals().cached == 0);
  set_memory_cap(0);
}

TEST_CASE(
    "if the system has no memory left, cached memory is returned first, and a refused allocation is not counted") {
  use_caching_allocator();
  trim_memory();
  bytes(100 << 20);  // cached now
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  rlimit tight = before;
  tight.rlim_cur = pages * 4096 + (60 << 20);
  setrlimit(RLIMIT_AS, &tight);
  const MemoryTotals totals = memory_totals();
  const bool fits = bytes(130 << 20).numel() == 130 << 20;  // only if it took the place of the cached block
  std::string message;
  try {
    bytes(int64_t{1} << 40);
  } catch (const RunError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_AS, &before);
  CHECK(fits);
  CHECK_THAT(message, Catch::Contains("the system has no memory left") && Catch::Contains("in use: weights "));
  CHECK(memory_totals().live == totals.live);
  CHECK(memory_totals().cached == 0);
}

TEST_CASE("threads that allocate and free at the same time get separate blocks") {
  use_caching_allocator();
  const int64_t live = memory_totals().live;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<at::Tensor> held;
      for (int64_t i = 0; i < 400; ++i) {
        held.push_back(at::full({1 + i * 37 % 5000}, t * 1000 + i, at::kLong));
        if (held.size() > 10) {
          const auto& oldest = held.front();
          wrong += !at::equal(oldest, at::full(oldest.sizes(), t * 1000 + i - 10, at::kLong));
          held.erase(held.begin());
        }
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(memory_totals().live == live);
}

}  // namespace shardline::caching_allocator_test
