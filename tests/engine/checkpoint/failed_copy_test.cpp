// If one rank cannot copy its values while a checkpoint is being saved, all ranks give the checkpoint up and continue
// to train.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <limits>
#include <set>

#include "core/memory/caching_allocator.h"
#include "engine/checkpoint/piece_files.h"
#include "tests/engine/checkpoint/checkpoint_runs.h"

namespace shardline::failed_copy_test {

using namespace checkpoint_runs;
using Catch::Contains;

namespace {

constexpr auto kFailing = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr int kNever = std::numeric_limits<int>::max();

// The number of copies on this thread that succeed before one fails. Small copies do not count.
thread_local int copies_left = kNever;

// While the object exists, copies on this thread are counted, and one fails.
class Failing {
 public:
  explicit Failing(int successes) { copies_left = successes; }

 private:
  c10::impl::IncludeDispatchKeyGuard guard_{kFailing};
};

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  TORCH_CHECK(to.nbytes() < 64 || copies_left-- != 0, "no memory to copy with");
  const c10::impl::ExcludeDispatchKeyGuard as_usual(kFailing);
  return to.copy_(from, non_blocking);
}

// The live bytes of all ranks together, read while every rank is idle.
int64_t live_bytes(Communicator& world) {
  world.barrier();
  const int64_t live = memory_totals().live;
  world.barrier();
  return live;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("copy_", copy);
}

TEST_CASE(
    "if one rank cannot copy its values, all ranks abandon the checkpoint, continue training, and save the next one") {
  use_caching_allocator();
  const ScratchDirectory scratch;
  constexpr int kUnlucky = 2;
  std::set<std::string> wanted = {".attempt", "newest"};
  run_ranks(4, [&](CommunicatorPtr world) {
    const bool first = world->rank() == 0, unlucky = world->rank() == kUnlucky;
    Run run({}, {4, {{"pipeline_parallel_degree", 2}, {"tensor_parallel_degree", 2}}}, world);
    fill_parameters(run.config.model, run.model, 7, run.trainer.parameters());
    RepeatedBatch data(8, 8, 61, 5);
    const auto saver = run.saver(scratch.path());
    int64_t step = 0;
    const auto train_and_save = [&](int successes) {
      run.trainer.train_step(data, ++step);
      if (unlucky) {
        const Failing failing(successes);
        saver->start(step, {});
      } else {
        saver->start(step, {});
      }
      saver->finish();
      return first ? saver->take_failure() : "";
    };
    const auto expect_saved = [&](const std::string& failure) {
      CHECK(failure == "");
      CHECK(saver->last_saved() == step);
      if (!first) return;
      wanted.insert(checkpoint_name(step));
      CHECK(find_damage(scratch / checkpoint_name(step), read_manifest(scratch / checkpoint_name(step))).empty());
    };
    expect_saved(train_and_save(kNever));
    const int copies = unlucky ? kNever - copies_left : 0;
    if (unlucky) REQUIRE(copies > 20);
    for (const int successes : {0, copies / 2, copies - 1}) {
      const int64_t saved = saver->last_saved(), live = live_bytes(*world);
      const std::string failure = train_and_save(successes);
      if (first)
        CHECK_THAT(failure, Contains(cat(checkpoint_name(step), " was not saved: ")) &&
                                Contains(cat("rank ", kUnlucky, " could not copy its values: no memory to copy")));
      CHECK(saver->last_saved() == saved);
      CHECK(live_bytes(*world) == live);
      expect_saved(train_and_save(kNever));
    }
  });
  std::set<std::string> there;
  for (const auto& entry : fs::directory_iterator(scratch.path())) there.insert(entry.path().filename());
  CHECK(there == wanted);
}

}  // namespace shardline::failed_copy_test
