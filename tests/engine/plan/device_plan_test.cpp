// How the kind of device changes a plan.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/config/config.h"
#include "engine/plan/forecast.h"

#include "tests/catch.h"

namespace shardline::device_plan_test {
namespace {

const std::string kA100 = std::string(SHARDLINE_SOURCE_DIR) + "/configs/clusters/p4d.24xlarge.json";

// GPT-2 124M, planned for A100s or for as many CPUs with the same figures.
Forecast forecast_on(const char* device, bool bf16, const std::string& cluster = kA100) {
  const nlohmann::json file = {{"model", {{"config", {{"model_type", "gpt2"}}}}},
                               {"data", {{"train", "text.txt"}, {"tokenizer", "bytes"}, {"sequence_length", 1024}}},
                               {"training", {{"global_batch_size", 8}, {"bf16", bf16}}},
                               {"runtime", {{"device", device}}},
                               {"cluster", cluster},
                               {"output_dir", "out"}};
  const Config config = parse_config(file.dump(), "device plan test");
  const auto [model, machines, plan] = plan_model(config, 1);
  return make_forecast(config, machines, plan);
}

constexpr double kRuntime = 1 << 30;  // the runtime's memory on a GPU, by the plan

}  // namespace

// A cluster file may omit its devices' multiprocessors, which only the prices of products need.
TEST_CASE("the config alone decides whether a plan has the runtime of GPUs") {
  const auto path = std::filesystem::temp_directory_path() / "device_plan_test_cluster.json";
  nlohmann::json cluster = nlohmann::json::parse(std::ifstream(kA100));
  cluster["device"].erase("multiprocessors");
  std::ofstream(path) << cluster;
  for (const char* device : {"auto", "cuda", "cpu"}) {
    CAPTURE(device);
    const Forecast stated = forecast_on(device, true), unstated = forecast_on(device, true, path);
    CHECK(unstated.memory[0].total() == stated.memory[0].total());
    CHECK((stated.memory[0].workspace > kRuntime) == (device != std::string("cpu")));
  }
}

TEST_CASE("a plan counts the head's block of logits as the device allocates it") {
  for (const bool bf16 : {true, false}) {
    CAPTURE(bf16);
    const Forecast cpu = forecast_on("cpu", bf16), gpu = forecast_on("cuda", bf16);
    CHECK(gpu.memory[0].activations == cpu.memory[0].activations);
    const double logits = 8192 * (8 * 6288);  // bytes: 2048 or 4096 tokens, rows of 50304
    const double more = gpu.memory[0].workspace - kRuntime - cpu.memory[0].workspace;
    CHECK(more > logits / 2);
    CHECK(more < logits);
  }
}

}  // namespace shardline::device_plan_test
