#include "engine/checkpoint/snapshot.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/memory/caching_allocator.h"
#include "tests/engine/checkpoint/checkpoint_runs.h"

#include "tests/catch.h"

namespace shardline::snapshot_test {
namespace {

using namespace checkpoint_runs;

constexpr int64_t kBlockBytes = 4096;

}  // namespace

// The memory for a snapshot is checked before the run, so that no save fails in the middle of it.
TEST_CASE("a snapshot needs no more memory than it states") {
  const Grid grid = GENERATE(from_range(kGrids));
  CAPTURE(grid.smp.dump());
  use_caching_allocator();
  std::atomic<int> exchanging = 0;
  std::atomic<int64_t> copied = 0, exchanged = 0;  // bytes
  run_ranks(grid.ranks, [&](CommunicatorPtr world) {
    Run run({}, grid, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    const CheckpointContents contents(run.model.spec, run.trainer.parameters().trained_type(), run.options());
    std::vector<int> all(grid.ranks);
    std::iota(all.begin(), all.end(), 0);
    Snapshot snapshot(contents, held_parts(contents, run.trainer.parameters(), &run.trainer.optimizer()),
                      run.groups.world, {{.directories = {{all}}}}, kBlockBytes);
    const int64_t of_blocks = std::ssize(snapshot.blocks()) * kBlockBytes;
    CHECK(snapshot.memory_bytes() >= of_blocks);
    // Each rank sends at most as much as the others receive in a round.
    const auto of_round = static_cast<int64_t>(Snapshot::kBlocksOfRound) * kBlockBytes;
    CHECK(snapshot.memory_bytes() - of_blocks <= grid.ranks * of_round);
    if (snapshot.memory_bytes() > of_blocks) ++exchanging;
    copied += of_blocks;
    exchanged += snapshot.memory_bytes() - of_blocks;
    std::atomic<size_t> taken = 0;
    world->barrier({.what = "test"});
    if (world->rank() == 0) restart_memory_peaks();
    world->barrier({.what = "test"});
    snapshot.take([&](size_t) { ++taken; });
    world->barrier({.what = "test"});
    CHECK(taken == snapshot.blocks().size());
    const MemoryTotals totals = memory_totals();
    CHECK(totals.peak_live - totals.live <= kBlockBytes / 4);  // barriers send small messages
    world->barrier({.what = "test"});                          // nothing that is counted is freed
  });
  // This is what a plan's forecast states.
  const int64_t of_round = grid.ranks * static_cast<int64_t>(Snapshot::kBlocksOfRound) * kBlockBytes;
  CHECK(exchanged.load() <= 2 * std::min(copied.load(), of_round));
  CHECK((exchanging > 0) == (grid.ranks > 1 && grid.smp != json::object()));
}

}  // namespace shardline::snapshot_test
