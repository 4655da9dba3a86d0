// The anonymous memory of a training process follows the plan: what the process has before the first step, and the
// plan's peak of activations in use, within 5 % at a size where activations are most of it.
#include <malloc.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/config/config.h"
#include "engine/observe/format.h"
#include "engine/observe/memory_usage.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/ones_source.h"

#include "tests/catch.h"

namespace shardline::peak_memory_test {
namespace {

constexpr int64_t kLength = 128, kSamplesOfMicrobatch = 8;

// The largest RssAnon while it lives, looked at every millisecond.
class PeakWatcher {
 public:
  PeakWatcher() : thread_([this] { watch(); }) {}
  ~PeakWatcher() {
    done_ = true;
    thread_.join();
  }
  int64_t peak() const { return peak_; }

 private:
  void watch() {
    while (!done_) {
      peak_ = std::max<int64_t>(peak_, process_memory().anonymous);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::atomic<bool> done_ = false;
  std::atomic<int64_t> peak_ = 0;
  std::thread thread_;
};

struct Choice {
  std::string recompute = "none", offload = "no";
  int microbatches = 1;
  int horizon = 2;
  int layers = 8;
  std::string model = "gpt2";
};

Config config_of(const Choice& c) {
  nlohmann::json file = {{"model",
                          {{"config",
                            {{"model_type", c.model},
                             {"n_layer", c.layers},
                             {"n_head", 4},
                             {"n_embd", 128},
                             {"n_inner", 128},
                             {"n_positions", kLength},
                             {"vocab_size", 500}}}}},
                         {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
                         {"training", {{"global_batch_size", kSamplesOfMicrobatch * c.microbatches}}},
                         {"smp_options",
                          {{"microbatches", c.microbatches},
                           {"pipeline", "simple"},
                           {"activation_checkpointing", c.recompute},
                           {"offload_activations", c.offload != "no"},
                           {"offload_scope", c.offload == "no" ? "checkpointed" : c.offload},
                           {"activation_loading_horizon", c.horizon},
                           {"offload_path", std::filesystem::temp_directory_path().string()}}},
                         {"runtime", {{"communicator", "local"}}},
                         {"output_dir", "unused"}};
  if (c.model == "gptj") file["model"]["config"]["rotary_dim"] = 16;
  return parse_config(file.dump(), "memory test");
}

struct Peak {
  int64_t before = 0, planned = 0, measured = 0;  // anonymous bytes; planned bytes; anonymous bytes
  double off() const { return static_cast<double>(measured) / static_cast<double>(before + planned) - 1; }
};

Peak train_a_step(const Choice& choice) {
  const Config config = config_of(choice);
  const CommunicatorPtr world = make_local_world();
  const auto [source, machines, plan] = plan_model(config, 1);
  Trainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 10);
  fill_parameters(config.model, source, 1, trainer.parameters());
  OnesSource data(kSamplesOfMicrobatch * choice.microbatches, kLength);
  trim_memory();
  malloc_trim(0);
  // Weights, gradients (two of the tied table) and optimizer states are there already.
  const int64_t state = memory_totals().live;
  if (state < 4 * 4 * plan.parameters_by_rank[0] || state > 4.5 * 4 * plan.parameters_by_rank[0])
    throw RunError(cat(state, " bytes for ", plan.parameters_by_rank[0], " parameters"));
  Peak peak{.before = process_memory().anonymous, .planned = plan.activation_bytes_by_rank[0].in_use};
  const PeakWatcher watcher;
  trainer.train_step(data, 1);
  peak.measured = watcher.peak();
  return peak;
}

}  // namespace

TEST_CASE("the peak of anonymous memory is what is there before the first step and the plan's activations in use") {
  use_caching_allocator();
  train_a_step({.layers = 1});  // the libraries have their threads and tables
  const Choice choices[] = {{"none", "no", 1},
                            {"none", "no", 9},
                            {"selective", "no", 9},
                            {"each", "no", 28},
                            {"group_2", "no", 56},
                            {"none", "all", 16, 4},
                            {"selective", "all", 16, 4},
                            {"each", "checkpointed", 56, 14},
                            {"none", "no", 9, 2, 8, "gptj"},
                            {"each", "no", 28, 2, 8, "gptj"}};
  for (const Choice& choice : choices) {
    CAPTURE(choice.model, choice.recompute, choice.offload, choice.microbatches);
    const Peak peak = train_a_step(choice);
    std::cout << choice.model << ", " << choice.recompute << ", offload " << choice.offload << ", "
              << choice.microbatches << " microbatches: before the step "
              << format_bytes(static_cast<double>(peak.before)) << ", planned "
              << format_bytes(static_cast<double>(peak.planned)) << ", peak "
              << format_bytes(static_cast<double>(peak.measured)) << ": " << 100 * peak.off() << " % off" << std::endl;
    CHECK(std::abs(peak.off()) < 0.05);
  }
}

}  // namespace shardline::peak_memory_test
