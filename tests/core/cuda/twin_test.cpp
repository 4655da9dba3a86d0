// The host twins find mistakes that a GPU does not report; each is planted in a small kernel.
#include <numeric>

#include "core/cuda/launch.h"

#include "tests/catch.h"

namespace shardline::twin_test {
namespace {

using namespace cuda;
using Catch::Matchers::Contains;

constexpr int kThreads = 64;

template <int kMostThreads, class... Parameters>
void start(void (*kernel)(BlockOf<kMostThreads>, Parameters...), Parameters... parameters) {
  launch({.kernel = "tested", .blocks_x = 2, .threads = kThreads, .shared_bytes = kThreads * sizeof(float)}, nullptr,
         kernel, parameters...);
}

// Faults in the way a kernel's threads share memory; each must be found.
enum class Fault { none, no_barrier_before_read, no_barrier_before_write, warp_barrier_only, outside, unwritten };

SHARDLINE_KERNEL(kThreads, rotate, float* out, Fault fault) {
  SharedRoom room;
  const auto values = room.take<float>(kThreads);
  const int me = thread_index(), next = (me + 1) % kThreads;
  for (int round = 0; round < 2; ++round) {
    if (fault != Fault::unwritten || me > 0) values[me] = static_cast<float>(100 * round + me);
    if (fault == Fault::warp_barrier_only)
      sync_warp();
    else if (fault != Fault::no_barrier_before_read)
      sync_block();
    out[(block_x() * 2 + round) * kThreads + me] = values[fault == Fault::outside ? me + 1 : next];
    if (fault != Fault::no_barrier_before_write) sync_block();
  }
}

SHARDLINE_KERNEL(kThreads, rotate_in_warps, float* out, bool barrier) {
  SharedRoom room;
  const auto values = room.take<float>(kThreads);
  const int me = thread_index(), next = warp_index() * kWarp + (lane_index() + 1) % kWarp;
  for (int round = 0; round < 3; ++round) {
    values[me] = static_cast<float>(100 * round + me);
    sync_warp();
    const float got = values[next];
    if (barrier) sync_warp();
    out[block_x() * kThreads + me] = got;
  }
}

SHARDLINE_KERNEL(kThreads, reduce, float* out) {
  const float sum = warp_sum(static_cast<float>(thread_index()));
  const float most = warp_max(static_cast<float>(-thread_index()));
  out[block_x() * kThreads + thread_index()] = sum + 1000 * most;
}

SHARDLINE_KERNEL(kThreads, diverge, int returning) {
  if (thread_index() < returning) return;
  sync_block();
}

SHARDLINE_KERNEL(kThreads, mix_exchanges) {
  if (lane_index() < 7)
    sync_warp();
  else
    warp_sum(1);
}

SHARDLINE_KERNEL(kThreads, take_too_much) {
  SharedRoom room;
  room.take<float>(kThreads);
  room.take<float>(1);
}

SHARDLINE_KERNEL(kThreads - 1, declare_less, float* out) {
  out[block_x() * kThreads + thread_index()] = 1;
}

SHARDLINE_KERNEL(kThreads, count_atomically, uint64_t* out, bool reads_at_once) {
  SharedRoom room;
  const auto total = room.take<unsigned long long>(1);
  if (thread_index() == 0) total[0] = 0;
  sync_block();
  add_atomically(total[0], 1ull);
  if (!reads_at_once) sync_block();
  if (thread_index() == 0) out[block_x()] = total[0];
}

enum class CopyFault { none, no_wait, no_barrier_after_wait, no_barrier_before_copy, overlapping, misaligned };

// Returns what the neighbour copied from global memory, and zero for neighbours whose numbers do not exist.
SHARDLINE_KERNEL(kThreads, rotate_copies, const float* in, float* out, CopyFault fault) {
  SharedRoom room;
  const auto values = room.take<float>(kThreads);
  const int me = thread_index(), next = (me + 1) % kThreads;
  for (int round = 0; round < 2; ++round) {
    start_copy<1>(values, me, in + round * kThreads + me, me % 3 != 0);
    if (fault == CopyFault::overlapping) start_copy<1>(values, me, in + me, true);
    if (fault != CopyFault::no_wait) wait_for_copies();
    if (fault != CopyFault::no_barrier_after_wait) sync_block();
    out[(block_x() * 2 + round) * kThreads + me] = values[next];
    if (fault != CopyFault::no_barrier_before_copy) sync_block();
  }
  if (fault == CopyFault::misaligned) start_copy<2>(values.part(1, kThreads - 1), 0, in, true);
}

SHARDLINE_KERNEL(kThreads, start_only, const float* in) {
  SharedRoom room;
  start_copy<1>(room.take<float>(kThreads), thread_index(), in + thread_index(), true);
}

void run_with(CopyFault fault) {
  std::vector<float> in(2 * kThreads), out(4 * kThreads);
  std::iota(in.begin(), in.end(), 1.0f);
  start(rotate_copies, const_cast<const float*>(in.data()), out.data(), fault);
  for (int i = 0; i < 4 * kThreads; ++i) {
    const int next = (i + 1) % kThreads;
    REQUIRE(out[i] == (next % 3 != 0 ? in[i / kThreads % 2 * kThreads + next] : 0.0f));
  }
}

void run_with(Fault fault) {
  std::vector<float> out(4 * kThreads);
  start(rotate, out.data(), fault);
  for (int i = 0; i < 4 * kThreads; ++i)
    REQUIRE(out[i] == static_cast<float>(100 * (i / kThreads % 2) + (i + 1) % kThreads));
}

}  // namespace

TEST_CASE("threads of a block exchange values through shared memory in either order") {
  for (const auto order : {twin::Order::first_first, twin::Order::last_first}) {
    twin::order = order;
    run_with(Fault::none);
    std::vector<float> out(2 * kThreads);
    start(rotate_in_warps, out.data(), true);
    for (int i = 0; i < 2 * kThreads; ++i)
      REQUIRE(out[i] == static_cast<float>(200 + i % kThreads / kWarp * kWarp + (i + 1) % kWarp));
    start(reduce, out.data());
    for (int i = 0; i < 2 * kThreads; ++i) {
      const int warp = i % kThreads / kWarp;
      REQUIRE(out[i] == static_cast<float>(kWarp * (kWarp - 1) / 2 + warp * kWarp * kWarp - 1000 * warp * kWarp));
    }
    std::vector<uint64_t> count(2);
    start(count_atomically, count.data(), false);
    CHECK(count == std::vector<uint64_t>{kThreads, kThreads});
  }
  twin::order = twin::Order::first_first;
}

TEST_CASE("races in shared memory are detected in either order of the threads") {
  for (const auto order : {twin::Order::first_first, twin::Order::last_first}) {
    twin::order = order;
    for (const Fault fault : {Fault::no_barrier_before_read, Fault::no_barrier_before_write, Fault::warp_barrier_only})
      CHECK_THROWS_AS(run_with(fault), twin::KernelFault);
    std::vector<float> out(2 * kThreads);
    CHECK_THROWS_WITH(start(rotate_in_warps, out.data(), false), Contains("tested, block") && Contains("a race"));
    std::vector<uint64_t> count(2);
    CHECK_THROWS_WITH(start(count_atomically, count.data(), true), Contains("a race"));
  }
  twin::order = twin::Order::first_first;
}

TEST_CASE("copies to shared memory arrive when their threads wait, and earlier uses are detected") {
  for (const auto order : {twin::Order::first_first, twin::Order::last_first}) {
    twin::order = order;
    run_with(CopyFault::none);
    CHECK_THROWS_WITH(run_with(CopyFault::no_wait), Contains("has waited for its copy"));
    CHECK_THROWS_AS(run_with(CopyFault::no_barrier_after_wait), twin::KernelFault);
    CHECK_THROWS_WITH(run_with(CopyFault::no_barrier_before_copy), Contains("a race"));
    CHECK_THROWS_WITH(run_with(CopyFault::overlapping), Contains("has waited for its copy"));
    CHECK_THROWS_WITH(run_with(CopyFault::misaligned), Contains("not aligned"));
  }
  twin::order = twin::Order::first_first;
}

TEST_CASE("a thread that returns before its copies have arrived is detected") {
  const std::vector<float> in(kThreads);
  CHECK_THROWS_WITH(start(start_only, in.data()), Contains("a thread returned before"));
}

TEST_CASE(
    "reading shared memory that was never written, was not allocated at launch, or is outside its array is an error") {
  CHECK_THROWS_WITH(run_with(Fault::outside), Contains("element 64 of a shared array of 64"));
  CHECK_THROWS_WITH(run_with(Fault::unwritten), Contains("nothing was written to"));
  CHECK_THROWS_WITH(start(take_too_much), Contains("bytes of shared memory of a launch with 256"));
}

TEST_CASE("a launch whose blocks have more threads than the kernel declares is refused") {
  std::vector<float> out(2 * kThreads);
  CHECK_THROWS_WITH(start(declare_less, out.data()), "kernel tested: blocks of 64 threads, but it declares at most 63");
  CHECK(out == std::vector<float>(2 * kThreads));
}

TEST_CASE("a launch of more blocks than a GPU accepts is refused") {
  const auto start_blocks = [](int64_t x, int64_t y) {
    launch({.kernel = "tested", .blocks_x = x, .blocks_y = y, .threads = kThreads}, nullptr, diverge, 0);
  };
  CHECK_THROWS_WITH(start_blocks((int64_t{1} << 32) + 1, 1),
                    "kernel tested: 4294967297 x 1 blocks are more than a GPU can run");
  CHECK_THROWS_AS(start_blocks(int64_t{1} << 31, 1), std::invalid_argument);
  CHECK_THROWS_AS(start_blocks(1, 65536), std::invalid_argument);
  CHECK_NOTHROW(start_blocks(int64_t{1} << 40, 0));
  CHECK_NOTHROW(start_blocks(2, 3));
}

TEST_CASE("a barrier or exchange that some threads do not reach is an error") {
  CHECK_THROWS_AS(start(diverge, 1), twin::Deadlock);
  CHECK_THROWS_AS(start(diverge, kWarp), twin::Deadlock);
  CHECK_NOTHROW(start(diverge, kThreads));
  CHECK_THROWS_WITH(start(mix_exchanges), Contains("different instructions"));
}

}  // namespace shardline::twin_test
