// A checkpoint has no layout: read on any grid and saved again, its files have the same bytes.
#include <set>
#include <thread>

#include "engine/checkpoint/piece_files.h"
#include "tests/engine/checkpoint/checkpoint_runs.h"

namespace shardline::round_trip_test {

using namespace checkpoint_runs;

namespace {

void check_all_grids(const Job& job) {
  const ScratchDirectory scratch;
  train_and_save(job, scratch.path());
  const fs::path base = scratch / "checkpoint-2";
  int64_t step = 100;
  for (const auto& grid : kGrids) {
    CAPTURE(grid.ranks, grid.smp.dump());
    ++step;
    run_ranks(grid.ranks, [&](CommunicatorPtr world) {
      Run run(job, grid, world);
      run.read(base);
      run.save(scratch.path(), step);
    });
    const fs::path again = scratch / checkpoint_name(step);
    CHECK(differences(base, again) == "");
    CHECK(find_damage(again, read_manifest(again)).empty());
  }
}

}  // namespace

TEST_CASE("a checkpoint that any grid reads and saves again keeps its bytes") {
  check_all_grids({});
}

TEST_CASE("checkpoints do not depend on the precision: a run in another one reads it and saves the same bytes") {
  const json precisions = {{{"bf16", false}}, {{"bf16", true}}, {{"fp16", true}}};
  for (const auto& trained : precisions) {
    const ScratchDirectory scratch;
    train_and_save({.training = trained}, scratch.path());
    int64_t step = 100;
    for (const auto& continued : precisions)
      for (const auto& grid : {kGrids[0], kGrids[10]}) {
        CAPTURE(trained.dump(), continued.dump(), grid.ranks);
        ++step;
        run_ranks(grid.ranks, [&](CommunicatorPtr world) {
          Run run({.training = continued}, grid, world);
          run.read(scratch / "checkpoint-2");
          run.save(scratch.path(), step);
        });
        CHECK(differences(scratch / "checkpoint-2", scratch / checkpoint_name(step)) == "");
      }
  }
}

// Hosts that share a network file system have such sets of ranks.
TEST_CASE("a file written by one set of ranks has the same bytes as one written by all ranks") {
  const ScratchDirectory scratch;
  train_and_save({}, scratch.path());
  const std::vector<std::vector<std::vector<int>>> hosts = {{{0, 1}, {2, 3}}, {{1, 2}, {0, 3}}, {{0}, {1}, {2}, {3}}};
  int64_t step = 100;
  for (const auto& grid : kGrids) {
    if (grid.ranks != 4) continue;
    for (const auto& sets : hosts) {
      CAPTURE(grid.smp.dump(), sets);
      ++step;
      run_ranks(grid.ranks, [&](CommunicatorPtr world) {
        Run run({}, grid, world);
        run.read(scratch / "checkpoint-2");
        Stores stores = find_stores(scratch.path(), *world);
        stores.all.front().writers = sets;
        const auto saver = run.saver(scratch.path(), std::move(stores));
        saver->start(step, {});
        saver->finish();
        if (world->rank() == 0) CHECK(saver->take_failure() == "");
      });
      CHECK(differences(scratch / "checkpoint-2", scratch / checkpoint_name(step)) == "");
      CHECK(find_damage(scratch / checkpoint_name(step), read_manifest(scratch / checkpoint_name(step))).empty());
    }
  }
}

TEST_CASE("rotation keeps the checkpoint just saved, the best one, and those of later steps") {
  const ScratchDirectory scratch;
  const auto steps_after = [&](int64_t step, int64_t keep, int64_t best) {
    run_ranks(1, [&](CommunicatorPtr world) {
      Run run({}, {}, world);
      fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
      run.save(scratch.path(), step, keep, best);
    });
    std::vector<int64_t> steps;
    for (const auto& place : checkpoints_in(scratch.path())) steps.push_back(place.step);
    return steps;
  };
  using Steps = std::vector<int64_t>;
  CHECK(steps_after(20, 1, -1) == Steps{20});
  CHECK(steps_after(5, 1, -1) == Steps{20, 5});
  CHECK(steps_after(7, 1, 5) == Steps{20, 7, 5});
  CHECK(steps_after(9, 2, 5) == Steps{20, 9, 5});
  CHECK(steps_after(11, 3, 11) == Steps{20, 11, 9, 5});
  CHECK(steps_after(12, 2, 12) == Steps{20, 12, 11});
}

TEST_CASE(
    "records are on the disk before the checkpoint that relies on them appears, which is saved without them, too") {
  const ScratchDirectory scratch;
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run({}, {}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    std::vector<bool> there;
    CheckpointSaver saver({.directory = scratch.path(),
                           .stores = find_stores(scratch.path(), *world),
                           .spec = run.model.spec,
                           .parameters = run.trainer.parameters(),
                           .sync_records = [&] {
                             there.push_back(fs::exists(scratch / "checkpoint-1"));
                             if (there.size() == 2) throw RunError("disk of records");
                           }});
    saver.start(1, {});
    saver.finish();
    CHECK(saver.take_failure().empty());
    saver.start(2, {});
    saver.finish();
    CHECK(saver.take_failure() == "checkpoint-2 was saved, but: disk of records");
    CHECK(there == std::vector{false, true});
    CHECK(saver.last_saved() == 2);
  });
}

TEST_CASE("older checkpoints are removed even if the newest one cannot be named") {
  const ScratchDirectory scratch;
  fs::create_directories(scratch / "newest/full");  // not a file
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run({}, {}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    const auto saver = run.saver(scratch.path(), /*keep=*/1);
    for (const int step : {1, 2}) {
      saver->start(step, {});
      saver->finish();
      CHECK_THAT(saver->take_failure(), Catch::Contains("was saved, but: ") && Catch::Contains("newest"));
    }
  });
  const auto left = checkpoints_in(scratch.path());
  REQUIRE(left.size() == 1);
  CHECK(left.front().step == 2);
}

TEST_CASE("an attempt stops saving in a directory that another attempt has claimed") {
  const ScratchDirectory scratch;
  run_ranks(2, [&](CommunicatorPtr world) {
    Run run({}, {2}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    const auto earlier = run.saver(scratch.path());
    earlier->start(1, {});
    earlier->finish();
    const auto later = run.saver(scratch.path());
    earlier->start(2, {});
    earlier->finish();
    if (world->rank() == 0) CHECK_THAT(earlier->take_failure(), Catch::Contains("a later run has taken"));
    later->start(2, {});
    later->finish();
    if (world->rank() == 0) CHECK(later->take_failure().empty());
  });
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(scratch.path())) left.insert(entry.path().filename());
  CHECK(left == std::set<std::string>{".attempt", "checkpoint-1", "checkpoint-2", "newest"});
}

TEST_CASE("an attempt that loses its directory after publishing a checkpoint removes nothing there") {
  const ScratchDirectory scratch;
  run_ranks(2, [&](CommunicatorPtr world) {
    Run run({}, {2}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    const auto earlier = run.saver(scratch.path(), /*keep=*/1);
    earlier->start(1, {});
    earlier->finish();
    earlier->start(2, {});
    earlier->proceed();  // the blocks are written
    while (earlier->is_writing()) std::this_thread::yield();
    world->barrier({});
    if (world->rank() == 0) claim_directory(scratch.path(), "a later one");
    world->barrier({});
    earlier->finish();
    if (world->rank() == 0) CHECK_THAT(earlier->take_failure(), Catch::Contains("a later run has taken"));
  });
  CHECK(fs::exists(scratch / "checkpoint-1"));
  CHECK(fs::exists(scratch / "checkpoint-2"));
}

TEST_CASE("any grid keeps the bytes of a checkpoint with other optimizers, models and precisions") {
  check_all_grids({.training = {{"optim", "sgd"}, {"optim_args", "momentum=0.9"}}});
  check_all_grids({.training = {{"optim", "adafactor"}}});
  check_all_grids({.runtime = {{"dtype", "float64"}}});
  check_all_grids({.training = {{"bf16", true}}});
  const json trained = {"transformer.h.2.*", "transformer.h.4.mlp.*"};  // the others are frozen
  check_all_grids({.training = {{"trainable", trained}}});
  check_all_grids({.training = {{"trainable", trained}, {"bf16", true}, {"optim", "adafactor"}}});
  check_all_grids({.model = uneven_gptj()});
  check_all_grids({.model = uneven_gpt_neo()});
  const json untied = uneven_gpt2(61, 0.1, /*tied=*/false);
  check_all_grids({.model = untied, .training = {{"optim", "adafactor"}}});
}

}  // namespace shardline::round_trip_test
