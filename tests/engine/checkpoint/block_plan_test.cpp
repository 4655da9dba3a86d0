#include "engine/checkpoint/block_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/engine/checkpoint/checkpoint_runs.h"

namespace shardline::block_plan_test {

using namespace checkpoint_runs;

namespace {

constexpr int64_t kBlockBytes = 4096;

// The ranks that write each file, and the bytes of its blocks.
struct Written {
  std::set<int> writers;
  int64_t bytes = 0;
};

std::map<size_t, Written> written_with(const Grid& grid, const std::vector<WriterGroup>& writers) {
  std::map<size_t, Written> files;
  run_ranks(grid.ranks, [&](CommunicatorPtr world) {
    Run run({}, grid, world);
    const CheckpointContents contents(run.model.spec, run.trainer.parameters().trained_type(), run.options());
    const BlockPlan plan =
        make_block_plan(contents, held_parts(contents, run.trainer.parameters(), &run.trainer.optimizer()), *world,
                        writers, kBlockBytes);
    if (world->rank() != 0) return;
    for (const auto& block : plan.blocks) {
      files[block.file].writers.insert(block.writer);
      files[block.file].bytes += block.length;
    }
    REQUIRE(files.size() == contents.files().size());
    for (const auto& [file, written] : files) CHECK(written.bytes == contents.files()[file]->bytes);
  });
  return files;
}

}  // namespace

TEST_CASE("each file of a directory is written by one set of ranks, and the sets share the files") {
  for (const auto& grid : kGrids) {
    if (grid.ranks < 4) continue;
    CAPTURE(grid.smp.dump());
    std::vector<std::vector<int>> hosts(2);
    for (int rank = 0; rank < grid.ranks; ++rank) hosts[rank < grid.ranks / 2 ? 0 : 1].push_back(rank);
    for (const auto& [file, written] : written_with(grid, {{.directories = {hosts}}})) {
      CAPTURE(file);
      CHECK(std::ranges::any_of(hosts, [&](const auto& host) { return std::ranges::includes(host, written.writers); }));
      CHECK(written.writers.size() > 1);  // all ranks of the host participate
    }
  }
  // Replicas hold the same amount, so the larger files of the optimizer go to the host that has not written the model.
  const auto files = written_with(kGrids[5], {{.directories = {{{0}, {1}}}}});
  REQUIRE(files.size() == 2);
  CHECK(files.at(0).writers == std::set<int>{0});
  CHECK(files.at(1).writers == std::set<int>{1});
}

TEST_CASE("the first file goes to the host that holds most of it") {
  // Ranks 1 and 2 have two of three stages.
  CHECK(written_with(kGrids[2], {{.directories = {{{0}, {1, 2}}}}}).at(0).writers == std::set<int>{1, 2});
}

TEST_CASE("each directory gets a part of every file, from a set of its own ranks") {
  const auto files = written_with(kGrids[8], {{.directories = {{{0}, {1}}, {{2, 3}}}}});
  REQUIRE(files.size() == 2);
  for (const auto& [file, written] : files) {
    CAPTURE(file);
    CHECK(written.writers.contains(2));
    CHECK(written.writers.contains(3));
    CHECK(written.writers.contains(0) != written.writers.contains(1));
  }
}

}  // namespace shardline::block_plan_test
