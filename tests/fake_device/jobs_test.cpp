// Commands on the fake device print and write the same as on a CPU.
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/device/accelerator.h"
#include "engine/commands/job.h"
#include "partitioner/layout/profile.h"
#include "tensor_parallel/kernels/kernels.h"
#include "tensor_parallel/products/products.h"
#include "tests/engine/tiny_run.h"
#include "tests/fake_device/fake_device.h"

#include "tests/catch.h"

namespace shardline::jobs_test {
namespace {

using nlohmann::json;
using Faults = std::vector<std::string>;

Config config_on(const RunFolder& folder, const std::string& device, json changes) {
  changes["output_dir"] = folder / ("out-" + device);
  json file = tiny_run(folder, changes);
  file["training"].erase("use_cpu");
  file["runtime"]["device"] = device;
  return parse_config(file.dump(), "run.json");
}

template <class Job>
std::string printed(const Config& config, const Job& job) {
  std::ostringstream out;
  run_on_ranks(config, out, {}, job);
  return out.str();
}

std::vector<json> metrics_of(const Config& config) {
  std::vector<json> lines;
  std::ifstream file(config.output_dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("train, eval and generate give the same results on a device as on a CPU") {
  use_kernels(KernelLibrary::aten);
  use_products(ProductLibrary::aten);
  const RunFolder folder("fake-device-jobs");
  const json changes = {
      {"training", {{"max_steps", 3}, {"global_batch_size", 4}, {"eval_strategy", "steps"}, {"eval_steps", 2}}},
      {"data", {{"validation_split_percentage", 20}}},
      {"runtime", {{"timeline_steps", 1}}},
      {"smp_options", {{"microbatches", 2}, {"pipeline_parallel_degree", 2}}}};
  fake::take_faults();
  std::vector<json> metrics[2];
  std::string evaluated[2], generated[2];
  DeviceMemory trained_memory;  // on the device, since the start of this process
  for (const bool on_device : {false, true}) {
    const Config config = config_on(folder, on_device ? "cuda" : "cpu", changes);
    const auto text = train_in_process(config);
    trained_memory = device_memory(fake::device());
    CHECK_THAT(text, Catch::Contains(on_device ? "fake:0, float32, communicator threads" : "cpu, float32, "));
    CHECK((text.find("products by") == std::string::npos) == on_device);  // the note about products on CPUs
    metrics[on_device] = metrics_of(config);
    const Config trained = config_on(folder, on_device ? "cuda" : "cpu",
                                     {{"model", {{"path", config.output_dir}, {"config", nullptr}}},
                                      {"data", {{"validation", folder / "text.txt"}}},
                                      {"runtime", {{"communicator", "local"}}}});
    check_evaluate(trained);
    evaluated[on_device] = printed(trained, [&](RankContext& context) { evaluate_job(trained, context); });
    generated[on_device] = printed(trained, [&](RankContext& context) {
      generate_job(trained, {.prompts = {"line 1"}, .max_new_tokens = 8, .json = true}, context);
    });
  }
  use_kernels(KernelLibrary::automatic);
  use_products(ProductLibrary::automatic);
  CHECK(fake::take_faults() == Faults());
  REQUIRE(metrics[0].size() == metrics[1].size());
  for (size_t i = 0; i < metrics[0].size(); ++i)
    for (const char* key : {"step", "loss", "grad_norm", "eval_loss"})
      CHECK(metrics[0][i].value(key, json()) == metrics[1][i].value(key, json()));
  const auto result = [](const std::string& text) {
    return json::parse(text.substr(text.find('{')));
  };  // after progress
  CHECK(result(evaluated[0]) == result(evaluated[1]));
  CHECK(generated[0] == generated[1]);
  const json& step = metrics[1].front();
  const auto last_step = std::find_if(metrics[1].rbegin(), metrics[1].rend(),
                                      [](const json& line) { return line.contains("peak_memory_bytes"); });
  CHECK(last_step->at("peak_memory_bytes").at(0) ==
        json{{"counted", trained_memory.peak_active}, {"resident", trained_memory.peak_reserved}});
  CHECK(step.at("bubble_fraction") > 0);
  CHECK(step.at("bubble_fraction") < 1);
  CHECK(std::filesystem::exists(folder / "out-cuda/timeline/step-2.json"));
}

// With values, gradients and states on both sides of the link to the host, and a loss scale that changes.
TEST_CASE("a run on devices that continues from a checkpoint has the losses of one that was not stopped") {
  const RunFolder folder("fake-device-resume");
  const auto run = [&](const std::string& output, const json& resume) {
    json changes = {{"training", {{"max_steps", 5}, {"global_batch_size", 8}, {"save_steps", 2}}},
                    {"smp_options",
                     {{"microbatches", 2},
                      {"pipeline_parallel_degree", 2},
                      {"pipeline", "simple"},
                      {"shard_optimizer_state", true},
                      {"offload_optimizer_states", true},
                      {"activation_checkpointing", "each"},
                      {"offload_activations", true},
                      {"activation_loading_horizon", 1},
                      {"fp16", true}}},
                    {"mpi_options", {{"processes_per_host", 4}}}};
    changes["training"]["dynamic_loss_args"] = {{"init_scale", 65536}, {"scale_window", 1}};
    changes["training"]["resume_from_checkpoint"] = resume;
    Config config = config_on(folder, "cuda", changes);
    config.output_dir = folder / output;
    train_in_process(config);
    return metrics_of(config);
  };
  fake::take_faults();
  const auto whole = run("whole", nullptr), rest = run("rest", folder / "whole/checkpoint-2");
  CHECK(fake::take_faults() == Faults());
  REQUIRE(whole.size() == 5);
  REQUIRE(rest.size() == 3);
  for (size_t i = 0; i < rest.size(); ++i)
    for (const char* key : {"step", "loss", "grad_norm", "loss_scale"}) CHECK(rest[i].at(key) == whole[i + 2].at(key));
}

TEST_CASE("a rank makes its device the current one") {
  const RunFolder folder("fake-device-current");
  const Config config =
      config_on(folder, "cuda", {{"training", {{"max_steps", 2}}}, {"runtime", {{"communicator", "local"}}}});
  const c10::DeviceGuard another(fake::device(2));  // as in a process whose rank has a device other than the first
  fake::take_faults();
  train_in_process(config);
  CHECK(fake::take_faults() == Faults());
}

// On a real device, a process that queries memory holds some hundreds of MB of device memory until it ends.
TEST_CASE("devices are asked for their memory by the ranks, not by the checks before ranks are started") {
  const RunFolder folder("fake-device-checks");
  const Config config = config_on(folder, "cuda", {});
  fake::take_counts();
  check_train(config);
  CHECK(fake::take_counts().memory_questions == 0);
  printed(config, [](RankContext&) {});
  CHECK(fake::take_counts().memory_questions > 0);
}

TEST_CASE("the config selects TF32, which only devices have") {
  const RunFolder folder("fake-device-tf32");
  const auto precision = [] {
    return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  };
  const auto precision_with = [&](const json& tf32) {
    const Config config = config_on(folder, "cuda", {{"training", {{"tf32", tf32}}}});
    at::Float32Precision found = at::Float32Precision::NONE;
    printed(config, [&](RankContext&) { found = precision(); });
    return found;
  };
  CHECK(precision_with(true) == at::Float32Precision::TF32);
  CHECK(precision_with(false) == at::Float32Precision::IEEE);
  CHECK(precision_with(true) == at::Float32Precision::TF32);
  CHECK(precision_with(nullptr) == at::Float32Precision::IEEE);
  CHECK(at::globalContext().allowBF16ReductionCuBLAS() ==
        at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  const Config on_cpu = config_on(folder, "cpu", {{"training", {{"tf32", true}}}});
  CHECK_THROWS_WITH(check_train(on_cpu), Catch::Contains("/training/tf32: needs a GPU"));
  CHECK(precision() == at::Float32Precision::IEEE);
}

TEST_CASE("info lists devices and what a config would use of them") {
  const RunFolder folder("fake-device-info");
  const auto use = [&](const char* device, const json& changes) {
    const json info = json::parse(info_text(config_on(folder, device, changes), true));
    CHECK(info.at("gpus").size() == 4);
    CHECK(info.at("gpus").at(3).at("memory_bytes") == fake::kDeviceBytes);
    CHECK(info.at("gpus").at(3).at("problem") == nullptr);
    CHECK(info.at("links").size() == 6);
    CHECK(info.at("no_gpu") == nullptr);
    return info.at("use");
  };
  const json two = {{"smp_options", {{"pipeline_parallel_degree", 2}}}};
  const json threads = use("cuda", two);
  CHECK(threads.at("ranks").at(1).at("device") == "fake:0");
  CHECK(threads.at("ranks").at(1).at("why").get<std::string>().ends_with("threads share the first GPU"));
  CHECK(threads.at("tensors").at("communicator") == "threads");
  json processes = two;
  processes["runtime"]["communicator"] = "mpi";
  processes["mpi_options"]["processes_per_host"] = 6;
  const json shared = use("auto", processes);
  CHECK(shared.at("ranks").size() == 6);
  CHECK(shared.at("ranks").at(5).at("device") == "fake:1");
  CHECK(shared.at("tensors").at("why") == "6 ranks share 4 GPUs, but NCCL needs one GPU per rank");
  const json cpu = use("cpu", two);
  CHECK(cpu.at("ranks").at(0).at("device") == "cpu");
  CHECK(cpu.at("tensors").at("why") == "the ranks compute on CPUs");
  const json refused = use("auto", {{"training", {{"full_determinism", true}}}});
  CHECK_THAT(refused.at("problem").get<std::string>(), Catch::Contains("/training/full_determinism: is not supported"));
  CHECK_THAT(info_text(config_on(folder, "cuda", two), false), Catch::Contains("0 - 1  host memory"));
}

TEST_CASE("info names a device that cannot be used, with the reason, and still lists the others") {
  const RunFolder folder("fake-device-broken");
  fake::break_device(fake::device(), "CUDA error: out of memory\nSearch for more");
  CHECK_THROWS_WITH(printed(config_on(folder, "cuda", {}), [](RankContext&) {}),
                    Catch::Contains("GPU 0 of host ") &&
                        Catch::Contains(" cannot be used: CUDA error: out of memory; nvidia-smi shows"));
  const json gpus = json::parse(info_text({}, true)).at("gpus");
  const std::string text = info_text({}, false);
  fake::break_device(fake::device(), "");
  CHECK_THAT(gpus.at(0).at("problem").get<std::string>(), Catch::Contains("cannot be used: CUDA error: out of memory"));
  CHECK(gpus.at(0).at("free_bytes").is_null());
  CHECK(gpus.at(1).at("memory_bytes") == fake::kDeviceBytes);
  CHECK_THAT(text, Catch::Contains("unknown") && Catch::Contains("problem: GPU 0 of host "));
}

TEST_CASE("a device is profiled") {
  const RunFolder folder("fake-device-profile");
  const Config config = config_on(folder, "cuda", {{"smp_options", {{"tensor_parallel_degree", 2}}}});
  fake::take_faults();
  const auto text =
      printed(config, [&](RankContext& context) { profile_job(config, folder / "profile.json", context); });
  CHECK(fake::take_faults() == Faults());
  const Profile profile = read_profile(folder / "profile.json");
  CHECK(profile.device.memory_bytes == fake::kDeviceBytes);
  CHECK(profile.device.flops_per_second > 1e9);
  for (const auto& layer : profile.layers) {
    CHECK(layer.forward_seconds > 0);
    CHECK(layer.backward_seconds > 0);
  }
  REQUIRE_FALSE(profile.links.empty());
}

}  // namespace shardline::jobs_test
