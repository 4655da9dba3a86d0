// Devices with too little memory are refused before a run, or the lack is explained where memory runs out during one.
#include <ATen/DeviceAccelerator.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "engine/commands/job.h"
#include "engine/commands/parts/job_parts.h"
#include "engine/commands/parts/open_data.h"
#include "engine/run/memory_room.h"
#include "tests/engine/tiny_run.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::out_of_memory_test {
namespace {

using Catch::Contains;
using nlohmann::json;

constexpr double kMiB = 1 << 20;

// Must be called within run_on_ranks, which itself needs more memory.
void leave_free(int64_t bytes) {
  fake::set_device_bytes(device_memory(fake::device()).allocated + bytes);
}

struct WholeDevicesAtEnd {
  ~WholeDevicesAtEnd() { fake::set_device_bytes(fake::kDeviceBytes); }
};

Config config_on_device(const RunFolder& folder, json changes) {
  changes["runtime"]["device"] = "cuda";
  json file = tiny_run(folder, changes);
  file["training"].erase("use_cpu");
  return parse_config(file.dump(), "run.json");
}

// Returns the error that ends `job` on the ranks of the config.
std::string failure_on_ranks(const Config& config, const std::function<void(RankContext&)>& job) {
  const WholeDevicesAtEnd whole;
  std::ostringstream out;
  try {
    run_on_ranks(config, out, {}, job);
  } catch (const RunError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a device without room for the plan is refused before anything is created") {
  const RunFolder folder("no-room");
  const Config config =
      config_on_device(folder, {{"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}}});
  const auto failure = failure_on_ranks(config, [&](RankContext& context) {
    context.world->barrier();  // the other rank has its device
    if (context.first()) leave_free(100'000);
    context.world->barrier();
    train_job(config, context);
  });
  CHECK_THAT(failure, Contains("GPU 0 of host ") && Contains("97.7 KiB of ") &&
                          Contains(" free, but the plan needs ") && Contains("there for 2 ranks that share it"));
  CHECK_THAT(failure, Contains("planned for rank 0: ") && Contains("activations ") && Contains("to use less: "));
  CHECK_FALSE(std::filesystem::exists(config.output_dir));
}

// Memory may run out anywhere in a step: in the forward or the backward pass, or when states are created.
TEST_CASE("the error about a lack of memory on a device shows the plan and what to change") {
  const RunFolder folder("out-of-memory");
  const Config config = config_on_device(folder, {{"training", {{"max_steps", 2}}}});
  int failures = 0;
  const auto steps_within = [&](int64_t bytes) {
    const auto failure = failure_on_ranks(config, [&](RankContext& context) {
      const JobParts parts = make_parts(config, context);
      JobData data = open_data(config, parts.model, parts.plan.layout, context, /*with_train=*/true);
      leave_free(bytes);
      at::accelerator::resetPeakStats(0);
      explain_memory(parts, context, /*trains=*/true, [&] {
        RankTrainer trainer({config, parts.plan, parts.model, parts.groups, context.device}, 2);
        load_parameters(config, parts, trainer.parameters());
        for (int step = 1; step <= 2; ++step) trainer.train_step(*data.train, step);
      });
    });
    if (failure.empty()) return true;
    CAPTURE(failure, bytes);
    CHECK(failure.starts_with("out of memory on rank 0, GPU 0 of host "));
    CHECK_THAT(failure, Contains("Fake device 0 out of memory. Tried to allocate "));
    CHECK_THAT(failure, Contains("\n  in use at the peak: ") && Contains("; the device has "));
    if (bytes >= 100'000) CHECK_THAT(failure, Contains(" KiB by tensors of this process, "));
    CHECK_THAT(failure, Contains("\n  planned for this rank: ") && Contains("KiB: ") && Contains("optimizer "));
    CHECK_THAT(failure, Contains("\n  to use less: smaller microbatches") && Contains("activation_checkpointing") &&
                            Contains("training.bf16") &&
                            Contains("; `shardline plan CONFIG.json --cluster local` shows"));
    CHECK(failure.find("Exception raised from") == std::string::npos);
    ++failures;
    return false;
  };
  int64_t bytes = 20'000;
  while (!steps_within(bytes)) bytes += 20'000;
  CHECK(failures > 5);
  CHECK(bytes < kMiB);
}

TEST_CASE("a lack of memory is explained if a library of CUDA reports it, too") {
  const auto failure = [](at::Device device, const char* text) -> std::string {
    try {
      explain_lack_of_memory([] { return MemoryBytes{.weights = 10, .optimizer = 20}; }, device,
                             [&] { TORCH_CHECK(false, text); });
    } catch (const RunError& error) {
      return error.what();
    } catch (const c10::Error&) {
      return "as it was";
    }
    return "";
  };
  for (const char* text : {"CUDA error: out of memory\nSearch for more",
                           "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"}) {
    CHECK_THAT(failure(fake::device(), text),
               Contains("out of memory on rank ") && Contains(": CUDA error: ") && !Contains("Search for") &&
                   Contains("planned for this rank: 30 B: optimizer 20 B, weights 10 B") && Contains("to use less: "));
    CHECK(failure(at::kCPU, text) == "as it was");
  }
  CHECK(failure(fake::device(), "CUDA error: an illegal memory access was encountered") == "as it was");
}

TEST_CASE("a lack of memory is explained if CUDA cannot load a kernel") {
  const auto explain = [](const std::string& text) {
    explain_lack_of_memory([] { return MemoryBytes{.weights = 10}; }, fake::device(),
                           [&] { throw std::runtime_error(text); });
  };
  CHECK_THROWS_WITH(explain("kernel norm_forward: out of memory"),
                    Contains("out of memory on rank ") && Contains(": kernel norm_forward: out of memory\n") &&
                        Contains("planned for this rank: 10 B: weights 10 B"));
  CHECK_THROWS_WITH(explain("kernel norm_forward: invalid argument"), "kernel norm_forward: invalid argument");
}

TEST_CASE("if there are more processes than devices, the error states that ranks share devices") {
  const std::vector<MemoryRoom> two = {{"a", "GPU 0 of host x", 10, 20}, {"b", "GPU 1 of host x", 10, 20}};
  CHECK(sharing_note(two).empty());
  const std::vector<MemoryRoom> shared = {two[0], two[1], two[1]};
  CHECK_THAT(sharing_note(shared), Contains("3 ranks share 2 devices: 2 of them are on GPU 1 of host x"));
  check_rooms(two, {{.weights = 10}, {.weights = 9}});
  CHECK_THROWS_WITH(check_rooms(shared, {{.weights = 1}, {.weights = 6}, {.weights = 6}}),
                    Contains("GPU 1 of host x has 10 B of 20 B free, but the plan needs 12 B there for 2 ranks") &&
                        Contains("other processes may hold memory there"));
  CHECK_THROWS_WITH(check_rooms(two, {{.weights = 5, .optimizer = 20}, {.weights = 9}}),
                    Contains("the plan needs 25 B there for rank 0") && Contains("shard_optimizer_state") &&
                        !Contains("other processes"));
}

TEST_CASE("a host without room for its ranks' offloaded activations is refused") {
  const std::vector<MemoryRoom> hosts = {{"x", "host x", 10, 20}, {"x", "host x", 9, 20}, {"y", "host y", 10, 20}};
  check_host_rooms(hosts, {{.weights = 100, .host = 4}, {.host = 5}, {.host = 10}});
  CHECK_THROWS_WITH(
      check_host_rooms(hosts, {{.host = 4}, {.host = 6}, {.host = 10}}),
      Contains("host x has 9 B of 20 B free, but the plan needs 10 B there for 2 ranks that share it, for "
               "optimizer states and activations") &&
          Contains("offload_activations false"));
  const RunFolder folder("no-host-room");
  std::vector<MemoryRoom> here;
  failure_on_ranks(config_on_device(folder, {{"smp_options", {{"pipeline_parallel_degree", 2}, {"microbatches", 2}}}}),
                   [&](RankContext& context) {
                     const auto rooms = gather_host_rooms(*context.world, context.host_of);
                     if (context.first()) here = rooms;
                   });
  REQUIRE(here.size() == 2);
  CHECK(here[0].id == here[1].id);
  CHECK(here[0].free_bytes > 0);
  CHECK(here[0].free_bytes <= here[0].bytes);
}

}  // namespace shardline::out_of_memory_test
