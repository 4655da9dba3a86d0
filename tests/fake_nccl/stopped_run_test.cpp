// If all ranks of a run over NCCL agree to stop, the run ends its communicators like a complete run.
#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/engine/tiny_run.h"
#include "tests/fake_nccl/device_ranks.h"

#include "tests/catch.h"

namespace shardline::stopped_run_test {
namespace {

using Texts = std::vector<std::string>;

Config config_of(const RunFolder& folder) {
  nlohmann::json file = tiny_run(folder, {{"training",
                                           {{"max_steps", 1000000},
                                            {"global_batch_size", 4},
                                            {"max_run_seconds", 1},
                                            {"save_strategy", "no"},
                                            {"use_cpu", nullptr}}},
                                          {"runtime", {{"device", "cuda"}}},
                                          {"smp_options", {{"microbatches", 2}, {"pipeline_parallel_degree", 2}}}});
  return parse_config(file.dump(), "run.json");
}

}  // namespace

TEST_CASE("a run over NCCL that stops after saving aborts nothing") {
  const RunFolder folder("stopped-over-nccl");
  const testing::Limits limits(std::chrono::seconds(20), std::chrono::seconds(20));
  const Config config = config_of(folder);
  std::atomic<int> stopped = 0, aborted = 0;
  testing::run_on_devices(2, [&](CommunicatorPtr control) {
    std::ostringstream out;
    fake::take_nccl_calls();
    {
      RankContext context{.world = control,
                          .device_world = make_nccl_world(control, control->rank(), fake::nccl()),
                          .local_rank = control->rank(),
                          .local_size = 2,
                          .device = fake::device(control->rank()),
                          .out = control->rank() == 0 ? &out : nullptr};
      try {
        train_job(config, context);
      } catch (const StoppedAfterSaving&) {
        ++stopped;
      }
    }
    const Texts calls = fake::take_nccl_calls();
    aborted += std::count(calls.begin(), calls.end(), "abort");
  });
  CHECK(stopped == 2);
  CHECK(aborted == 0);
  CHECK(fake::take_faults() == Texts{});
  CHECK(fake::take_nccl_faults() == Texts{});
  CHECK(fake::live_nccl_communicators() == 0);
}

}  // namespace shardline::stopped_run_test
