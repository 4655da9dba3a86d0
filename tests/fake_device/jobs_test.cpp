// Commands on the fake device: what they print and write is what they print and write on a CPU.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

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

TEST_CASE("train, eval and generate on a device give what they give on a CPU") {
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
  for (const bool on_device : {false, true}) {
    const Config config = config_on(folder, on_device ? "cuda" : "cpu", changes);
    const auto text = train_in_process(config);
    CHECK_THAT(text, Catch::Contains(on_device ? "fake:0" : "cpu"));
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
  CHECK(step.at("peak_memory_bytes").at(0).at("counted") > 10000);
  CHECK(step.at("bubble_fraction") > 0);
  CHECK(step.at("bubble_fraction") < 1);
  CHECK(std::filesystem::exists(folder / "out-cuda/timeline/step-2.json"));
}

TEST_CASE("a device is profiled") {
  const RunFolder folder("fake-device-profile");
  const Config config = config_on(folder, "cuda", {{"smp_options", {{"tensor_parallel_degree", 2}}}});
  fake::take_faults();
  const auto text =
      printed(config, [&](RankContext& context) { profile_job(config, folder / "profile.json", context); });
  CHECK(fake::take_faults() == Faults());
  const Profile profile = read_profile(folder / "profile.json");
  CHECK(profile.device.memory_bytes == 1ll << 34);
  CHECK(profile.device.flops_per_second > 1e9);
  for (const auto& layer : profile.layers) {
    CHECK(layer.forward_seconds > 0);
    CHECK(layer.backward_seconds > 0);
  }
  REQUIRE_FALSE(profile.links.empty());
}

}  // namespace shardline::jobs_test
