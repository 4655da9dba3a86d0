// The anonymous memory of a training process is as planned: it is what the process has before the first step, plus the
// plan's peak of activations in use, within 5 % at a size at which activations dominate.
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/local_communicator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "engine/config/config.h"
#include "engine/data/dataset/example_source.h"
#include "engine/observe/format.h"
#include "engine/observe/memory_usage.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/ones_source.h"

#include "tests/catch.h"

namespace shardline::peak_memory_test {
namespace {

constexpr int64_t kLength = 128, kSamplesOfMicrobatch = 8;

// The largest RssAnon during its lifetime, sampled every millisecond.
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
  std::string model = "gpt2", task = "causal-lm";
  std::vector<std::string> trainable = {};
};

nlohmann::json model_of(const Choice& c) {
  if (c.model == "bert" || c.model == "distilbert")
    return {{"model_type", c.model},
            {"num_hidden_layers", c.layers},
            {"num_attention_heads", 4},
            {"hidden_size", 128},
            {c.model == "bert" ? "intermediate_size" : "hidden_dim", 128},
            {"max_position_embeddings", kLength},
            {"num_labels", 3},
            {"vocab_size", 500}};
  nlohmann::json config = {{"model_type", c.model}, {"n_layer", c.layers},    {"n_head", 4},      {"n_embd", 128},
                           {"n_inner", 128},        {"n_positions", kLength}, {"vocab_size", 500}};
  if (c.model == "gptj") config["rotary_dim"] = 16;
  return config;
}

Config config_of(const Choice& c) {
  nlohmann::json file = {
      {"task", c.task},
      {"model", {{"config", model_of(c)}}},
      {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", kLength}}},
      {"training", {{"global_batch_size", kSamplesOfMicrobatch * c.microbatches}, {"trainable", c.trainable}}},
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
  return parse_config(file.dump(), "memory test");
}

// Samples of a task, each as long as the plan assumes.
std::unique_ptr<BatchSource> source_of(const Choice& c, const Config& config) {
  const int64_t samples = kSamplesOfMicrobatch * c.microbatches;
  if (c.task == "causal-lm") return std::make_unique<OnesSource>(samples, kLength);
  const bool of_rows = c.task == "masked-lm" || c.task == "token-classification";
  ExampleShape shape{.types = true, .labels = of_rows};
  if (c.task == "sequence-classification") shape.targets = TargetKind::classes, shape.width = 1;
  if (c.task == "question-answering") shape.targets = TargetKind::answers, shape.width = 2;
  Example example{.ids = std::vector<int32_t>(kLength, 1), .types = std::vector<uint8_t>(kLength, 1)};
  if (of_rows) example.labels.assign(kLength, 1);
  example.targets.assign(shape.width, 1);
  ExampleWriter writer(shape);
  for (example.row = 0; example.row < samples; ++example.row) writer.add(example);
  const auto path = std::filesystem::temp_directory_path() / cat("peak_memory_test.", ::getpid());
  writer.write(path, std::string(32, '0'), {.rows = samples});
  const auto set = std::make_shared<const ExampleSet>(path);
  std::filesystem::remove(path);
  std::optional<TokenMasking> masking;
  if (c.task == "masked-lm")
    masking.emplace(MaskingRule{.probability = config.data.mlm_probability, .mask_token = 2, .words = 500}, 1);
  const ExampleSource::Options options{.masking = masking};
  return std::make_unique<ExampleSource>(examples_of_rows(set, rows_with_examples(*set)),
                                         SampleOrderOptions{.global_batch = samples, .shuffle = false}, options);
}

struct Peak {
  int64_t before = 0, planned = 0, measured = 0;  // anonymous bytes; planned bytes; anonymous bytes
  double off() const { return static_cast<double>(measured) / static_cast<double>(before + planned) - 1; }
};

Peak train_a_step(const Choice& choice) {
  const Config config = config_of(choice);
  const CommunicatorPtr world = make_local_world();
  const auto [source, machines, plan] = plan_model(config, 1);
  RankTrainer trainer({config, plan, source, make_rank_groups(plan.layout.mesh(), world, world), at::kCPU}, 10);
  fill_parameters(config.model, source, 1, trainer.parameters());
  const auto data = source_of(choice, config);
  trim_memory();
  malloc_trim(0);
  // Weights, gradients (two of the tied table) and optimizer states already exist.
  const int64_t state = memory_totals().live;
  const bool is_whole = choice.trainable.empty();
  if (state < (is_whole ? 4 : 1) * 4 * plan.parameters_by_rank[0] || state > 4.5 * 4 * plan.parameters_by_rank[0])
    throw RunError(cat(state, " bytes for ", plan.parameters_by_rank[0], " parameters"));
  Peak peak{.before = process_memory().anonymous, .planned = plan.activation_bytes_by_rank[0].in_use};
  const PeakWatcher watcher;
  trainer.train_step(*data, 1);
  peak.measured = watcher.peak();
  return peak;
}

}  // namespace

TEST_CASE("the peak of anonymous memory is the memory before the first step plus the plan's activations in use") {
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
                            {"each", "no", 28, 2, 8, "gptj"},
                            {"none", "no", 9, 2, 8, "bert", "sequence-classification"},
                            {"none", "no", 9, 2, 8, "bert", "question-answering"},
                            {"none", "no", 9, 2, 8, "bert", "token-classification"},
                            {"none", "no", 9, 2, 8, "bert", "masked-lm"},
                            {"each", "no", 28, 2, 8, "bert", "sequence-classification"},
                            {"none", "no", 9, 2, 8, "distilbert", "sequence-classification"},
                            {"none", "no", 9, 2, 8, "distilbert", "question-answering"},
                            {"none", "no", 9, 2, 8, "distilbert", "masked-lm"},
                            // Layers before the first trained one keep nothing.
                            {"none", "no", 9, 2, 8, "bert", "sequence-classification", {"h.[4-7].*", "head.*"}},
                            {"none", "no", 9, 2, 8, "bert", "sequence-classification", {"head.*"}}};
  for (const Choice& choice : choices) {
    CAPTURE(choice.model, choice.task, choice.recompute, choice.offload, choice.microbatches);
    const Peak peak = train_a_step(choice);
    std::cout << choice.model << ", " << choice.task << (choice.trainable.empty() ? "" : " (partly frozen)") << ", "
              << choice.recompute << ", offload " << choice.offload << ", " << choice.microbatches
              << " microbatches: before the step " << format_bytes(static_cast<double>(peak.before)) << ", planned "
              << format_bytes(static_cast<double>(peak.planned)) << ", peak "
              << format_bytes(static_cast<double>(peak.measured)) << ": " << 100 * peak.off() << " % off" << std::endl;
    CHECK(std::abs(peak.off()) < 0.05);
  }
}

}  // namespace shardline::peak_memory_test
